// folio tokenize, folio detokenize: text to token ids and back.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "commands.h"
#include "json_line.h"
#include "tokenizer/compressed_vocab.h"
#include "tokenizer/token_ids.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer_flags.h"

namespace folio {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxTextBytes = size_t{1} << 30;

struct TokenizeFlags {
  TokenizerFlags tokenizer;
  std::string text;
  std::string file;
  bool no_special = false;
  bool pieces = false;
  bool json = false;
  bool json_lines = false;
  bool compressed_map = false;
};

struct DetokenizeFlags {
  TokenizerFlags tokenizer;
  std::vector<std::string> ids;
  std::string file;
  bool skip_hidden = false;
  bool json = false;
  bool json_lines = false;
};

std::string read_stdin() {
  std::string content;
  std::vector<char> buffer(size_t{1} << 16);
  while (std::cin.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || std::cin.gcount() > 0) {
    content.append(buffer.data(), static_cast<size_t>(std::cin.gcount()));
    if (content.size() > kMaxTextBytes) {
      fail(ErrorCode::kInvalidArgument, "standard input is longer than the limit of ", kMaxTextBytes, " bytes");
    }
  }
  return content;
}

std::string read_input(const std::string& file) { return file.empty() ? read_stdin() : read_file(file, kMaxTextBytes); }

// Calls `answer` with the JSON value of every line of the input and prints what it returns, one line each. Reads line
// by line, so that a program can hold the command open and ask.
void for_each_json_line(const std::string& file, const std::function<ordered_json(const ordered_json&)>& answer) {
  std::istringstream content;
  if (!file.empty()) content.str(read_file(file, kMaxTextBytes));
  std::istream& in = file.empty() ? std::cin : content;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string where = concat(file.empty() ? "standard input" : file, ": line ", number);
    const ordered_json value = ordered_json::parse(line, nullptr, false);
    if (value.is_discarded()) fail(ErrorCode::kInvalidArgument, where, " is not valid JSON");
    try {
      std::cout << json_line(answer(value)) << '\n';
    } catch (const Error& error) {
      fail(error.code(), where, ": ", error.what());
    }
    if (in.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
}

// A line is a string, or {"text": string, "untrusted": [[begin, end], ...]} with ascending, disjoint byte ranges.
std::vector<int32_t> encode_line(const Tokenizer& tokenizer, const ordered_json& line, Special special) {
  const bool plain = line.is_string();
  if (!plain && !(line.is_object() && line.contains("text") && line["text"].is_string())) {
    fail(ErrorCode::kInvalidArgument, "neither a string nor an object with a \"text\"");
  }
  const auto& text = (plain ? line : line["text"]).get_ref<const std::string&>();
  if (plain || !line.contains("untrusted")) return tokenizer.encode(text, special);
  std::vector<ByteRange> untrusted;
  size_t covered = 0;
  const ordered_json& ranges = line["untrusted"];
  if (!ranges.is_array()) fail(ErrorCode::kInvalidArgument, "\"untrusted\" is not an array of [begin, end]");
  for (const ordered_json& range : ranges) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned()) {
      fail(ErrorCode::kInvalidArgument, "\"untrusted\" is not an array of [begin, end]");
    }
    const ByteRange bytes{range[0].get<size_t>(), range[1].get<size_t>()};
    if (bytes.begin < covered || bytes.end < bytes.begin || bytes.end > text.size()) {
      fail(ErrorCode::kInvalidArgument, "the ranges of \"untrusted\" are not ascending, disjoint and inside the text");
    }
    covered = bytes.end;
    untrusted.push_back(bytes);
  }
  return tokenizer.encode(text, untrusted);
}

void print_ids(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const TokenizeFlags& flags) {
  if (flags.json) {
    ordered_json object{{"count", ids.size()}, {"ids", ids}};
    if (flags.pieces) {
      ordered_json& pieces = object["pieces"] = ordered_json::array();
      for (const int32_t id : ids) pieces.push_back(tokenizer.bytes(id));
    }
    std::cout << json_line(object) << '\n';
    return;
  }
  if (flags.pieces) {
    for (const int32_t id : ids) std::cout << id << '\t' << json_line(tokenizer.bytes(id)) << '\n';
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << ids[i];
  std::cout << '\n';
}

void tokenize(const TokenizeFlags& flags, bool has_text) {
  const Tokenizer tokenizer = load_tokenizer(flags.tokenizer);
  const Special special = flags.no_special ? Special::kAsText : Special::kMatch;
  if (flags.compressed_map) {
    const CompressedVocabulary vocabulary = compressed_vocabulary(tokenizer);
    std::cout << json_line(ordered_json{{"count", vocabulary.count}, {"map", vocabulary.map}}) << '\n';
  } else if (flags.json_lines) {
    for_each_json_line(flags.file, [&](const ordered_json& line) { return encode_line(tokenizer, line, special); });
  } else {
    print_ids(tokenizer, tokenizer.encode(has_text ? flags.text : read_input(flags.file), special), flags);
  }
}

void detokenize(const DetokenizeFlags& flags) {
  const Tokenizer tokenizer = load_tokenizer(flags.tokenizer);
  if (flags.json_lines) {
    for_each_json_line(flags.file, [&](const ordered_json& line) {
      if (!line.is_array()) fail(ErrorCode::kInvalidArgument, "not an array of token ids");
      std::vector<int32_t> ids;
      for (const ordered_json& id : line) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(tokenizer.vocab_size())) {
          fail(ErrorCode::kInvalidArgument, json_line(id), " is not a token id: ids are 0 to ",
               tokenizer.vocab_size() - 1);
        }
        ids.push_back(id.get<int32_t>());
      }
      return ordered_json(tokenizer.decode(ids, flags.skip_hidden));
    });
    return;
  }
  std::vector<int32_t> ids;
  for (const std::string& text : flags.ids) {
    const std::vector<int32_t> more = parse_token_ids(text, "ids");
    ids.insert(ids.end(), more.begin(), more.end());
  }
  if (flags.ids.empty())
    ids = parse_token_ids(read_input(flags.file), flags.file.empty() ? "standard input" : flags.file);
  const std::string text = tokenizer.decode(ids, flags.skip_hidden);
  if (flags.json) {
    std::cout << json_line(ordered_json{{"text", text}}) << '\n';
  } else {
    std::cout << text << (isatty(STDOUT_FILENO) != 0 ? "\n" : "");
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text");
  command->footer(
      "The text is --text, the content of --file, or standard input to its end. No token is added in front or behind.");
  const auto flags = std::make_shared<TokenizeFlags>();
  add_tokenizer_flags(*command, flags->tokenizer);
  CLI::Option* text = command->add_option("--text", flags->text, "The text")->type_name("TEXT");
  CLI::Option* file =
      command->add_option("--file", flags->file, "A file with the text")->type_name("FILE")->excludes(text);
  command->add_flag("--no-special", flags->no_special,
                    "Take spellings of added tokens, such as <think>, as ordinary text: for text that a user wrote");
  CLI::Option* pieces = command->add_flag("--pieces", flags->pieces, "Print one token per line: its id and its text");
  CLI::Option* json =
      command->add_flag("--json", flags->json, "Print one object: count, ids and, with --pieces, pieces");
  CLI::Option* lines =
      command
          ->add_flag("--json-lines", flags->json_lines,
                     "Every input line is a JSON string, or {\"text\", \"untrusted\": [[begin, end], ...]} where added "
                     "tokens are not matched in those byte ranges; print an array of ids for each")
          ->excludes(text)
          ->excludes(pieces)
          ->excludes(json);
  command
      ->add_flag("--compressed-map", flags->compressed_map,
                 "Print Engram's compressed id of every token of the vocabulary, as JSON, and nothing else")
      ->excludes(text)
      ->excludes(file)
      ->excludes(pieces)
      ->excludes(lines);
  command->callback([flags, text] { tokenize(*flags, text->count() > 0); });
}

void add_detokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("detokenize", "Print the text of token ids");
  command->footer(
      "The ids are arguments, the content of --file, or standard input, separated by white space or commas. Bytes that "
      "are not UTF-8 print as U+FFFD; no newline is added unless the output is a terminal.");
  const auto flags = std::make_shared<DetokenizeFlags>();
  add_tokenizer_flags(*command, flags->tokenizer);
  CLI::Option* ids = command->add_option("ids", flags->ids, "Token ids")->type_name("ID");
  command->add_option("--file", flags->file, "A file with the ids")->type_name("FILE")->excludes(ids);
  command->add_flag("--skip-hidden", flags->skip_hidden, "Leave out begin of sentence, end of sentence and padding");
  CLI::Option* json = command->add_flag("--json", flags->json, "Print one object: text");
  command
      ->add_flag("--json-lines", flags->json_lines,
                 "Every input line is a JSON array of ids; print a JSON string for each")
      ->excludes(ids)
      ->excludes(json);
  command->callback([flags] { detokenize(*flags); });
}

}  // namespace folio
