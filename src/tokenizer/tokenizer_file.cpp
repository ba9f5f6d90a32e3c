#include "tokenizer/tokenizer_file.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"

namespace folio {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kMaxMerges = size_t{1} << 20;
constexpr size_t kMaxAddedTokens = size_t{1} << 16;
constexpr size_t kMaxTokenBytes = 1024;
constexpr size_t kMaxOtherValues = size_t{1} << 20;

// The three regular expressions of the published pre_tokenizer (protocol spec 1.5), as the file holds them.
constexpr std::string_view kDigitGroups = "\\p{N}{1,3}";
constexpr std::string_view kCjkRuns = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr std::string_view kWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

// `text` for a message: quoted, cut to a readable length, control characters escaped.
std::string for_message(std::string_view text) {
  constexpr size_t kShown = 60;
  const bool cut = text.size() > kShown;
  return Json(text.substr(0, kShown)).dump(-1, ' ', true, Json::error_handler_t::replace) + (cut ? "..." : "");
}

// Receives the events of the JSON parser. `model.vocab` and `model.merges`, the bulk of the file, go straight into the
// lists; the rest becomes a document, as small as it is in any honest file.
class FileReader : public nlohmann::json_sax<Json> {
 public:
  explicit FileReader(const std::string& origin) : origin_(origin) {}

  TokenizerFile file;
  Json document;

  bool null() override { return other(nullptr); }
  bool boolean(bool value) override { return other(value); }
  bool number_float(double value, const std::string&) override { return other(value); }
  bool number_integer(int64_t value) override { return part_ == Part::kVocab ? token(value) : other(value); }
  bool number_unsigned(uint64_t value) override {
    if (part_ != Part::kVocab) return other(value);
    return token(static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max())));
  }
  bool binary(Json::binary_t&) override { return other(nullptr); }

  bool string(std::string& value) override {
    if (part_ != Part::kMerges) return other(value);
    if (pair_) {
      pair_->push_back(std::move(value));
      if (pair_->size() > 2) bad_merge();
      return true;
    }
    const size_t space = value.find(' ');
    if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) bad_merge();
    return merge(value.substr(0, space), value.substr(space + 1));
  }

  bool key(std::string& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_object(size_t) override {
    if (part_ == Part::kMerges) bad_merge();
    if (part_ == Part::kVocab) bad_token();
    open();
    if (bulk("vocab")) {
      if (!file.vocab.empty()) fail("model.vocab occurs twice");
      part_ = Part::kVocab;
      return true;
    }
    push(Json::object());
    return true;
  }

  bool end_object() override {
    --depth_;
    if (part_ == Part::kVocab) {
      part_ = Part::kDocument;
    } else {
      open_values_.pop_back();
    }
    return true;
  }

  bool start_array(size_t) override {
    if (part_ == Part::kVocab) bad_token();
    if (part_ == Part::kMerges && pair_) bad_merge();
    open();
    if (part_ == Part::kMerges) {
      pair_.emplace();
      return true;
    }
    if (bulk("merges")) {
      if (!file.merges.empty()) fail("model.merges occurs twice");
      part_ = Part::kMerges;
      return true;
    }
    push(Json::array());
    return true;
  }

  bool end_array() override {
    --depth_;
    if (pair_) {
      if (pair_->size() != 2) bad_merge();
      merge(std::move((*pair_)[0]), std::move((*pair_)[1]));
      pair_.reset();
    } else if (part_ == Part::kMerges) {
      part_ = Part::kDocument;
    } else {
      open_values_.pop_back();
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();
    fail("not valid JSON at byte ", position, ": ", what.substr(std::min(what.size(), what.find(": ") + 2)));
  }

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    folio::fail(ErrorCode::kInvalidTokenizer, origin_, ": ", parts...);
  }

 private:
  enum class Part { kDocument, kVocab, kMerges };

  [[noreturn]] void bad_token() const { fail("model.vocab: the id of ", for_message(key_), " is not an integer"); }
  [[noreturn]] void bad_merge() const {
    fail("model.merges[", file.merges.size(), "] is not two tokens (\"left right\" or [\"left\", \"right\"])");
  }

  void open() {
    if (++depth_ > kMaxDepth) fail("nested deeper than ", kMaxDepth, " levels");
  }

  // Whether the container that was just opened is the value of `name` in the object `model`.
  bool bulk(std::string_view name) const {
    return depth_ == 3 && key_ == name && open_values_.size() == 2 && model_ != nullptr && open_values_[1] == model_;
  }

  bool token(int64_t id) {
    if (key_.size() > kMaxTokenBytes)
      fail("model.vocab: ", for_message(key_), " is longer than ", kMaxTokenBytes, " bytes");
    if (file.vocab.size() == kMaxTokens) fail("model.vocab has more than ", kMaxTokens, " tokens");
    file.vocab.push_back({std::move(key_), id});
    return true;
  }

  bool merge(std::string left, std::string right) {
    if (left.empty() || right.empty()) bad_merge();
    if (file.merges.size() == kMaxMerges) fail("model.merges has more than ", kMaxMerges, " entries");
    file.merges.emplace_back(std::move(left), std::move(right));
    return true;
  }

  // A scalar outside the lists.
  bool other(Json value) {
    if (part_ == Part::kVocab) bad_token();
    if (part_ == Part::kMerges) bad_merge();
    put(std::move(value));
    return true;
  }

  void push(Json container) { open_values_.push_back(put(std::move(container))); }

  Json* put(Json value) {
    if (++other_values_ > kMaxOtherValues) fail("more than ", kMaxOtherValues, " values beside the vocabulary");
    if (open_values_.empty()) {
      document = std::move(value);
      return &document;
    }
    Json& parent = *open_values_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    const auto [entry, is_new] = parent.emplace(key_, std::move(value));
    if (!is_new) fail("the key ", for_message(key_), " occurs twice in one object");
    if (open_values_.size() == 1 && key_ == "model") model_ = &*entry;
    return &*entry;
  }

  const std::string& origin_;
  Part part_ = Part::kDocument;
  size_t depth_ = 0;
  size_t other_values_ = 0;
  std::string key_;
  std::vector<Json*> open_values_;  // the containers of the document that are open, outermost first
  const Json* model_ = nullptr;
  std::optional<std::vector<std::string>> pair_;  // an open two-element merge
};

// Looks at the settings of the document; every one that would change ids and is not supported is refused by name.
class Settings {
 public:
  Settings(const FileReader& reader) : reader_(reader) {}

  void check_model() const {
    const Json& model = member(reader_.document, "model");
    if (!model.is_object()) reader_.fail("model is missing or not an object");
    expect(member(model, "type") == "BPE", "model.type", member(model, "type"), "\"BPE\"");
    for (const char* name : {"dropout", "unk_token"}) {
      expect(member(model, name).is_null(), std::string("model.") + name, member(model, name), "null");
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = member(model, name);
      expect(value.is_null() || value == "", std::string("model.") + name, value, "null");
    }
    for (const char* name : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
      expect(is_flag(model, name, false, false), std::string("model.") + name, member(model, name), "false");
    }
    if (reader_.file.vocab.empty()) reader_.fail("model.vocab is missing, empty or not an object");
    if (model.contains("vocab")) reader_.fail("model.vocab is not an object");
    if (model.contains("merges")) reader_.fail("model.merges is not an array");
  }

  void check_stages() const {
    const Json& document = reader_.document;
    for (const char* name : {"truncation", "padding"}) {
      expect(member(document, name).is_null(), name, member(document, name), "null");
    }
    const Json& normalizer = member(document, "normalizer");
    const bool identity = normalizer.is_null() ||
                          (has_type(normalizer, "Sequence") && member(normalizer, "normalizers") == Json::array());
    expect(identity, "normalizer", normalizer, "null or an empty Sequence");
    const Json& post_processor = member(document, "post_processor");
    expect(post_processor.is_null() || has_type(post_processor, "ByteLevel"), "post_processor", post_processor,
           "null or ByteLevel");
    const Json& decoder = member(document, "decoder");
    expect(has_type(decoder, "ByteLevel"), "decoder", decoder, "ByteLevel");
  }

  PreTokenizer pre_tokenizer() const {
    const Json& value = member(reader_.document, "pre_tokenizer");
    if (has_type(value, "ByteLevel") && is_byte_level(value, true)) return PreTokenizer::kByteLevel;
    const Json& steps = member(value, "pretokenizers");
    const bool published = has_type(value, "Sequence") && steps.is_array() && steps.size() == 4 &&
                           is_split(steps[0], kDigitGroups) && is_split(steps[1], kCjkRuns) &&
                           is_split(steps[2], kWords) && is_byte_level(steps[3], false);
    expect(published, "pre_tokenizer", value,
           "the published Sequence of three Splits and ByteLevel, or ByteLevel with use_regex and no prefix space");
    return PreTokenizer::kDeepSeek;
  }

  std::vector<TokenizerFile::Token> added_tokens() const {
    std::vector<TokenizerFile::Token> added;
    const Json& list = member(reader_.document, "added_tokens");
    if (list.is_null()) return added;
    if (!list.is_array()) reader_.fail("added_tokens is not an array");
    if (list.size() > kMaxAddedTokens) reader_.fail("added_tokens has more than ", kMaxAddedTokens, " entries");
    added.reserve(list.size());
    for (const Json& token : list) {
      const std::string where = concat("added_tokens[", added.size(), "]");
      const Json& id = member(token, "id");
      const Json& content = member(token, "content");
      if (!id.is_number_integer()) reader_.fail(where, " has no integer id");
      if (!content.is_string() || content == "") reader_.fail(where, " has no content");
      const auto& text = content.get_ref<const std::string&>();
      if (text.size() > kMaxTokenBytes) reader_.fail(where, ".content is longer than ", kMaxTokenBytes, " bytes");
      for (const char* name : {"single_word", "lstrip", "rstrip"}) {
        expect(is_flag(token, name, false, false), concat(where, ".", name), member(token, name), "false");
      }
      const bool too_large = id.is_number_unsigned() && id.get<uint64_t>() > std::numeric_limits<int64_t>::max();
      added.push_back({text, too_large ? std::numeric_limits<int64_t>::max() : id.get<int64_t>()});
    }
    return added;
  }

 private:
  // The member `name` of `value`; null when it is absent or `value` is not an object.
  static const Json& member(const Json& value, const char* name) {
    static const Json null;
    const auto found = value.is_object() ? value.find(name) : value.end();
    return found == value.end() ? null : *found;
  }
  static bool has_type(const Json& value, const char* type) { return member(value, "type") == type; }
  static bool is_flag(const Json& value, const char* name, bool expected, bool absent) {
    const Json& flag = member(value, name);
    return flag.is_null() ? absent == expected : flag == expected;
  }
  static bool is_byte_level(const Json& step, bool use_regex) {
    return has_type(step, "ByteLevel") && is_flag(step, "add_prefix_space", false, true) &&
           is_flag(step, "use_regex", use_regex, true);
  }
  static bool is_split(const Json& step, std::string_view pattern) {
    return has_type(step, "Split") && member(member(step, "pattern"), "Regex") == pattern &&
           member(step, "behavior") == "Isolated" && is_flag(step, "invert", false, false);
  }

  void expect(bool holds, const std::string& name, const Json& value, const char* supported) const {
    if (holds) return;
    const std::string shown = value.dump(-1, ' ', true);
    reader_.fail(name, " is ", shown.substr(0, 200), shown.size() > 200 ? "..." : "", ", supported: ", supported);
  }

  const FileReader& reader_;
};

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view json, const std::string& origin) {
  FileReader reader(origin);
  if (json.size() > kMaxTokenizerFileBytes) reader.fail("larger than ", kMaxTokenizerFileBytes, " bytes");
  Json::sax_parse(json, &reader);
  if (!reader.document.is_object()) reader.fail("not a JSON object");
  const Settings settings(reader);
  settings.check_model();
  settings.check_stages();
  TokenizerFile file = std::move(reader.file);
  file.pre_tokenizer = settings.pre_tokenizer();
  file.added = settings.added_tokens();
  return file;
}

}  // namespace folio
