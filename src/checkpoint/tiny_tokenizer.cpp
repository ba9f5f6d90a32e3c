#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "base/byte_letters.h"
#include "base/error.h"
#include "checkpoint/presets.h"

namespace folio {
namespace {

using nlohmann::ordered_json;

constexpr const char* kWords =
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were her all she there would their we him been has when who will more no if out so said what "
    "up its about into than them can only other new some could time these two may then do first any my now such "
    "like our over man me even most made after also did many before must through back years where much your way "
    "well down should because each just those people how too little state good very make world still see own work "
    "long get here between both life being under never day same another know while last might great old year off "
    "come since against go came right used take three";

// UTF-8 of a code point below 0x800.
std::string utf8(char32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// What the 256 bytes are spelled with.
std::array<std::string, 256> byte_alphabet() {
  std::array<std::string, 256> alphabet;
  std::ranges::transform(byte_letters(), alphabet.begin(), utf8);
  return alphabet;
}

class VocabularyBuilder {
 public:
  VocabularyBuilder(int64_t size, const std::map<int64_t, std::string>& specials) : size_(size), specials_(specials) {
    for (const std::string& letter : alphabet_) insert(letter);
  }

  // Adds a text and its prefixes; every new piece is one merge of (prefix, last byte). False when no id is left.
  bool add(const std::string& text) {
    std::string prefix;
    for (const char c : text) {
      const std::string& letter = alphabet_[static_cast<unsigned char>(c)];
      const std::string piece = prefix + letter;
      if (!ids_.contains(piece)) {
        if (!insert(piece)) return false;
        if (!prefix.empty()) merges_.push_back(concat(prefix, " ", letter));
      }
      prefix = piece;
    }
    return true;
  }

  // {piece: id} by ascending id. Pieces are distinct, so they go in without the look-up of operator[].
  ordered_json vocabulary() const {
    ordered_json object = ordered_json::object();
    auto& members = object.get_ref<ordered_json::object_t&>();
    for (const std::string& piece : pieces_) members.push_back({piece, ids_.at(piece)});
    return object;
  }
  const std::vector<std::string>& merges() const { return merges_; }

 private:
  bool insert(const std::string& piece) {
    while (specials_.contains(next_)) ++next_;
    if (next_ >= size_) return false;
    ids_.emplace(piece, next_++);
    pieces_.push_back(piece);
    return true;
  }

  const std::array<std::string, 256> alphabet_ = byte_alphabet();
  const int64_t size_;
  const std::map<int64_t, std::string>& specials_;
  int64_t next_ = 0;
  std::unordered_map<std::string, int64_t> ids_;
  std::vector<std::string> pieces_;  // by ascending id
  std::vector<std::string> merges_;
};

std::string capitalised(std::string word) {
  word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
  return word;
}

std::string upper(std::string word) {
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word;
}

bool add_words(VocabularyBuilder& builder) {
  for (const char* text : {"é", "É", " é", "ß", "Å", "\u3000", "ﬁ", "Ａ"}) {
    if (!builder.add(text)) return false;
  }
  std::istringstream words(kWords);
  for (std::string word; words >> word;) {
    const std::string capital = capitalised(word);
    for (const std::string& text : {" " + word, word, " " + capital, capital, upper(word)}) {
      if (!builder.add(text)) return false;
    }
  }
  return true;
}

}  // namespace

std::string tiny_tokenizer_json(int64_t vocab_size, int64_t noise_id, int64_t image_id) {
  const std::map<int64_t, std::string> specials = {{0, "<｜begin▁of▁sentence｜>"},
                                                   {1, "<｜end▁of▁sentence｜>"},
                                                   {2, "<｜▁pad▁｜>"},
                                                   {noise_id, "<｜noise｜>"},
                                                   {image_id, "<｜deepseek_image｜>"}};
  FOLIO_CHECK(vocab_size >= 256 + 5 && specials.size() == 5, vocab_size);
  VocabularyBuilder builder(vocab_size, specials);
  if (add_words(builder)) {
    for (int64_t number = 0; builder.add(std::to_string(number)); ++number) {
    }
  }

  ordered_json added = ordered_json::array();
  for (const auto& [id, content] : specials) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto byte_level = [](bool add_prefix_space) {
    return ordered_json{
        {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", true}};
  };
  ordered_json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false}};
  model["vocab"] = builder.vocabulary();
  model["merges"] = builder.merges();
  ordered_json data = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  data["added_tokens"] = std::move(added);
  data["normalizer"] = nullptr;
  data["pre_tokenizer"] = byte_level(false);
  data["post_processor"] = nullptr;
  data["decoder"] = byte_level(true);
  data["model"] = std::move(model);
  return data.dump(1);
}

}  // namespace folio
