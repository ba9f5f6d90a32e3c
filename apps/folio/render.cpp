// folio render: messages to the prompt that the model sees.
#include "protocol/render.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "chat_file.h"
#include "commands.h"
#include "protocol/field_error.h"
#include "thinking_flags.h"
#include "tokenizer_flags.h"

namespace folio {
namespace {

struct RenderFlags {
  TokenizerFlags tokenizer;
  ThinkingFlags thinking;
  std::string messages, tools;
  std::string end = "generate";
  std::string developer = "system";
  bool special = false;
  bool text = false;
};

const std::map<std::string, PromptEnd> kEnds = {{"generate", PromptEnd::kGenerate},
                                                {"none", PromptEnd::kNoHeader},
                                                {"continue", PromptEnd::kContinue},
                                                {"reference", PromptEnd::kReference}};

Json read_json_file(const std::string& path) {
  const std::string text = read_file(path == "-" ? "/dev/stdin" : path, kMaxMessagesBytes);
  try {
    return Json::parse(text);
  } catch (const Error& error) {
    fail(error.code(), path == "-" ? "standard input" : path, ": ", error.what());
  }
}

// The messages of a list, or of a chat request with its tools.
std::vector<Message> read_messages(const RenderFlags& flags, const Json& file) {
  const DeveloperRole developer = flags.developer == "user" ? DeveloperRole::kUser : DeveloperRole::kSystem;
  const Json* list = file.object() != nullptr ? file.find("messages") : &file;
  if (list == nullptr) fail_field("messages", "is missing in ", flags.messages);
  std::vector<Message> messages = parse_messages(*list, developer);
  const Json* tools = file.find("tools");
  if (tools != nullptr) attach_tools(messages, parse_tools(*tools));
  if (!flags.tools.empty()) attach_tools(messages, parse_tools(read_json_file(flags.tools), flags.tools));
  return messages;
}

void print_json(const Prompt& prompt, const std::vector<int32_t>& ids) {
  const nlohmann::ordered_json report = {
      {"prompt", prompt.text},
      {"count", ids.size()},
      {"ids", ids},
      {"images", prompt.images.size()},
      {"answer_starts_in", prompt.answer == AnswerStart::kReasoning ? "reasoning" : "content"}};
  std::printf("%s\n", report.dump().c_str());
}

void run_render(const RenderFlags& flags) {
  const Json file = read_json_file(flags.messages);
  const std::vector<Message> messages = read_messages(flags, file);
  const RenderOptions options{.thinking = chosen_thinking(flags.thinking, file), .end = kEnds.at(flags.end)};
  const Prompt prompt = render(messages, options);
  if (flags.text) {
    std::fwrite(prompt.text.data(), 1, prompt.text.size(), stdout);
  } else {
    print_json(prompt, prompt.tokens(load_tokenizer(flags.tokenizer), flags.special));
  }
}

}  // namespace

void add_render(CLI::App& app) {
  CLI::App* command = app.add_subcommand("render", "Print the prompt that chat messages become");
  command->footer(
      "Prints one JSON object: prompt, count, ids, images and where the answer starts. Nothing is generated.\n"
      "Example: echo '[{\"role\": \"user\", \"content\": \"hi\"}]' | folio render --messages - --no-thinking --text");
  const auto flags = std::make_shared<RenderFlags>();
  command
      ->add_option("--messages", flags->messages,
                   "A JSON file with a list of messages, or with a chat request; -: standard input")
      ->type_name("FILE")
      ->required();
  command->add_option("--tools", flags->tools, "A JSON file with a list of tools, beside those of the request")
      ->type_name("FILE");
  add_thinking_flags(*command, flags->thinking);
  command
      ->add_option(
          "--end", flags->end,
          "How it ends. generate: ready for an answer; none: without the answer's header; continue: inside the "
          "last message; reference: as the released encoder does")
      ->type_name("generate|none|continue|reference")
      ->check(CLI::IsMember(std::vector<std::string>{"generate", "none", "continue", "reference"}));
  command->add_option("--developer-role", flags->developer, "What the role developer is taken for")
      ->type_name("system|user")
      ->check(CLI::IsMember({"system", "user"}));
  command->add_flag("--parse-special-in-user-text", flags->special,
                    "Let special tokens that messages spell be tokens, as the released encoder does");
  command->add_flag("--text", flags->text, "Print the prompt text alone, and no newline behind it");
  add_tokenizer_flags(*command, flags->tokenizer);
  command->callback([flags] { run_render(*flags); });
}

}  // namespace folio
