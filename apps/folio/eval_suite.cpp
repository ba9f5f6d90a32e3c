#include "eval_suite.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/memory.h"
#include "bundled_files.h"

namespace folio {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 26;
constexpr std::string_view kAnswerBegins = "<｜Assistant｜>";

// A field that what is expected of an answer must have.
struct Field {
  const char* name;
  nlohmann::json::value_t type;
};

class Reader {
 public:
  Reader(std::string dir, const Tokenizer& tokenizer) : dir_(std::move(dir)), tokenizer_(tokenizer) {}

  // The objects of a file of one a line.
  std::vector<nlohmann::json> lines(const std::string& name) const {
    std::istringstream in(content(name));
    std::vector<nlohmann::json> values;
    for (std::string line; std::getline(in, line);) {
      values.push_back(parse(line, concat(where(name), ", line ", values.size() + 1)));
    }
    if (values.empty()) fail(ErrorCode::kInvalidArgument, where(name), " is empty");
    return values;
  }

  std::vector<EvalQuestion> questions(const std::string& name, const std::vector<Field>& fields) const {
    const nlohmann::json file = parse(content(name), where(name));
    const std::string before = text(file, "before", where(name)), after = text(file, "after", where(name));
    if (!file.contains("prompts") || !file["prompts"].is_array() || file["prompts"].empty()) {
      fail(ErrorCode::kInvalidArgument, where(name), " has no list \"prompts\"");
    }
    std::vector<EvalQuestion> questions;
    for (const nlohmann::json& prompt : file["prompts"]) {
      const std::string here = concat(where(name), ", prompt ", questions.size() + 1);
      EvalQuestion question{.prompt = tokenizer_.encode(before + text(prompt, "text", here) + after),
                            .expected = prompt};
      for (const Field& field : fields) {
        const auto value = prompt.find(field.name);
        if (value != prompt.end() && value->type() == field.type) continue;
        fail(ErrorCode::kInvalidArgument, here, ": no \"", field.name, "\" that is ",
             nlohmann::json(field.type).type_name());
      }
      question.expected.erase("text");
      questions.push_back(std::move(question));
    }
    return questions;
  }

  // A field that must be text.
  static std::string text(const nlohmann::json& value, const char* field, const std::string& where) {
    if (!value.is_object() || !value.contains(field) || !value[field].is_string()) {
      fail(ErrorCode::kInvalidArgument, where, ": no text \"", field, "\"");
    }
    return value[field].get<std::string>();
  }

  std::string where(const std::string& name) const {
    return dir_.empty() ? name : (std::filesystem::path(dir_) / name).string();
  }

 private:
  std::string content(const std::string& name) const {
    if (!dir_.empty()) return read_file(where(name), kMaxFileBytes);
    const auto files = bundled_eval_files();
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
    FOLIO_CHECK(found != files.end());
    return std::string(found->bytes);
  }

  static nlohmann::json parse(const std::string& text, const std::string& where) {
    try {
      return nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& error) {
      fail(ErrorCode::kInvalidArgument, where, " is not JSON: ", error.what());
    }
  }

  std::string dir_;
  const Tokenizer& tokenizer_;
};

// The prompts of all answers of a conversation: each up to where the model begins to think or to answer.
void add_turns(const std::string& text, const std::string& kind, const Tokenizer& tokenizer,
               std::vector<EvalTurn>& turns) {
  for (size_t at = 0; (at = text.find(kAnswerBegins, at)) != std::string::npos;) {
    at += kAnswerBegins.size();
    for (const std::string_view tag : {"<think>", "</think>"}) {
      if (std::string_view(text).substr(at).starts_with(tag)) {
        turns.push_back({.kind = kind, .prompt = tokenizer.encode(text.substr(0, at + tag.size()))});
      }
    }
  }
}

}  // namespace

const EvalDomain& EvalSuite::domain(const std::string& name) const {
  const auto found = std::find_if(domains.begin(), domains.end(), [&](const auto& d) { return d.name == name; });
  FOLIO_CHECK(found != domains.end());
  return *found;
}

EvalSuite EvalSuite::load(const std::string& dir, const Tokenizer& tokenizer) {
  const Reader reader(dir, tokenizer);
  EvalSuite suite;
  for (const char* name : {"chat", "entries", "stories"}) {
    const std::string file = concat(name, ".jsonl");
    EvalDomain domain{.name = name, .tokens = {}};
    int64_t number = 0;
    for (const nlohmann::json& line : reader.lines(file)) {
      const std::string here = concat(reader.where(file), ", line ", ++number);
      const std::string text = Reader::text(line, "text", here);
      const std::vector<int32_t> tokens = tokenizer.encode(text);
      domain.tokens.insert(domain.tokens.end(), tokens.begin(), tokens.end());
      if (domain.name == "chat") {
        add_turns(text, Reader::text(line, "kind", here), tokenizer, suite.turns);
      }
    }
    suite.domains.push_back(std::move(domain));
  }
  using Type = nlohmann::json::value_t;
  suite.recall = reader.questions("recall.json", {{"phrase", Type::string}, {"gloss", Type::string}});
  suite.tool_calls = reader.questions("tool_calls.json", {{"name", Type::string}, {"arguments", Type::object}});
  suite.objects = reader.questions("objects.json", {{"keys", Type::array}});
  return suite;
}

int64_t text_bytes(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  int64_t bytes = 0;
  for (const int32_t id : tokens) bytes += tokenizer.is_added(id) ? 0 : std::ssize(tokenizer.bytes(id));
  return bytes;
}

}  // namespace folio
