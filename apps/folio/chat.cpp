// folio chat: a conversation on the command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "answer_sink.h"
#include "base/clock.h"
#include "base/error.h"
#include "chat_file.h"
#include "chat_screen.h"
#include "commands.h"
#include "engine/engine.h"
#include "engine_flags.h"
#include "generation_flags.h"
#include "interrupt.h"
#include "line_reader.h"
#include "model_flags.h"
#include "protocol/chat_policy.h"
#include "protocol/render.h"
#include "thinking_flags.h"

namespace folio {
namespace {

constexpr const char* kHelp =
    "/help           this\n"
    "/reset          forget the conversation, but not the system message\n"
    "/system TEXT    the system message, from now on; without a text: none\n"
    "/think WHAT     on, off, or how thoroughly: low, high, max, 1 to 100\n"
    "/result TEXT    what a tool that the model has called gives, one for each call in their order\n"
    "/save FILE      write the conversation, for --messages and folio render\n"
    "/quit           leave, as Ctrl-D does\n"
    "A line that ends with \\ goes on in the next. Ctrl-C ends the answer. Put a space before a message that begins "
    "with /.";

struct ChatFlags {
  ChatFlags() { generation.sampling.temperature = 1, generation.max_tokens = 4096; }

  ModelFlags model;
  EngineFlags engine;
  GenerationFlags generation;
  ThinkingFlags thinking;
  std::string system, messages;
  bool no_history = false;
};

// One conversation with an engine.
class Chat {
 public:
  Chat(const ChatFlags& flags, const Tokenizer& tokenizer, Engine& engine)
      : flags_(flags),
        tokenizer_(tokenizer),
        engine_(engine),
        thinking_(chosen_thinking(flags.thinking)),
        reader_(flags.no_history ? "" : history_file("chat")) {
    if (!flags.messages.empty()) messages_ = load_conversation(flags.messages);
    if (!flags.system.empty()) set_system(flags.system);
  }

  // Until the input ends or the user leaves. Returns the exit status.
  int run() {
    if (reader_.interactive()) screen_.note("Type a message; /help says what else there is. Ctrl-D leaves.");
    for (std::string message; !left_;) {
      const LineReader::Event event = read_message(message);
      if (event == LineReader::Event::kEnd) break;
      if (event == LineReader::Event::kInterrupt) {
        if (!reader_.interactive()) return kInterruptedStatus;
        screen_.note("\nCtrl-D leaves.");
        continue;
      }
      bool goes_on = true;
      if (message == "/result" || message.starts_with("/result ")) {
        goes_on = give_result(message.substr(std::min(message.size(), sizeof "/result")));
      } else if (message.starts_with('/')) {
        command(message);
      } else if (message.find_first_not_of(" \t") != std::string::npos) {
        goes_on = answer(text_message(Role::kUser, message));
      }
      if (!goes_on) return kInterruptedStatus;
    }
    if (reader_.interactive() && !left_) std::fputc('\n', stderr);
    return 0;
  }

 private:
  LineReader::Event read_message(std::string& message) {
    message.clear();
    std::string line;
    for (const char* prompt = "> ";; prompt = ". ") {
      const LineReader::Event event = reader_.read(prompt, line);
      if (event == LineReader::Event::kEnd && !message.empty()) return LineReader::Event::kLine;
      if (event != LineReader::Event::kLine) return event;
      message += line;
      if (!message.ends_with('\\')) return event;
      message.back() = '\n';
    }
  }

  void command(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const std::string argument = line.substr(std::min(line.find_first_not_of(' ', space), line.size()));
    try {
      if (name == "/help") {
        screen_.note(kHelp);
      } else if (name == "/reset") {
        std::erase_if(messages_, [&](const Message& m) { return &m != messages_.data() || m.role != Role::kSystem; });
        screen_.note("The conversation starts anew.");
      } else if (name == "/system") {
        set_system(argument);
        screen_.note(argument.empty() ? "There is no system message." : "The system message is set.");
      } else if (name == "/think") {
        set_thinking(argument);
      } else if (name == "/save") {
        save(argument);
      } else if (name == "/quit" || name == "/exit") {
        left_ = true;
      } else {
        screen_.note(concat("There is no ", name, "; /help says what there is."));
      }
    } catch (const Error& error) {
      screen_.note(error.what());
    }
  }

  void set_system(const std::string& text) {
    const std::vector<Tool> tools = conversation_tools(messages_);
    if (!messages_.empty() && messages_[0].role == Role::kSystem) messages_.erase(messages_.begin());
    if (!text.empty()) messages_.insert(messages_.begin(), text_message(Role::kSystem, text));
    if (conversation_tools(messages_).empty()) attach_tools(messages_, tools);
  }

  void set_thinking(const std::string& what) {
    if (what == "off") {
      thinking_.on = false;
    } else {
      if (what != "on") thinking_.effort = typed_effort(what, "/think");
      thinking_.on = true;
    }
    screen_.note(thinking_.on ? concat("Thinking with effort ", thinking_.effort, ".") : "Answering without thinking.");
  }

  void save(const std::string& path) const {
    if (path.empty()) fail(ErrorCode::kInvalidArgument, "/save needs the name of a file");
    save_conversation(path, messages_);
    screen_.note(concat(messages_.size(), " messages are in ", path, "."));
  }

  // What a call gives. When all calls have their results, the model goes on. False as answer().
  bool give_result(const std::string& text) {
    const std::vector<ToolCall> open = open_calls(messages_);
    if (open.empty()) {
      screen_.note("No call waits for a result.");
      return true;
    }
    Message result = text_message(Role::kTool, text);
    result.tool_call_id = open.front().id;
    if (open.size() == 1) return answer(std::move(result));
    messages_.push_back(std::move(result));
    screen_.note(concat("Next: the result of ", open[1].name, "."));
    return true;
  }

  std::shared_ptr<Request> make_request(const ParserOptions& options, const Prompt& prompt) const {
    const auto request = std::make_shared<Request>();
    apply_generation_flags(flags_.generation, *request);
    request->prompt = prompt.tokens(tokenizer_);
    request->stop_ids = chat_stop_ids(tokenizer_);
    if (options.calls || !options.stops.empty()) {
      request->policies = {std::make_shared<ChatPolicy>(tokenizer_, ChatPolicyOptions{.parser = options})};
    }
    return request;
  }

  // Asks for the answer to a message and shows it. What cannot be asked is said, and the message forgotten. False when
  // the answer was interrupted and nobody is there to go on.
  bool answer(Message message) {
    messages_.push_back(std::move(message));
    try {
      const Prompt prompt = render(messages_, {.thinking = thinking_});
      const std::vector<Tool> tools = conversation_tools(messages_);
      const ParserOptions options{.start = prompt.answer,
                                  .calls = !tools.empty(),
                                  .tools = std::make_shared<const std::vector<Tool>>(tools),
                                  .stops = flags_.generation.stops};
      const auto sink = std::make_shared<AnswerSink>();
      const std::shared_ptr<Request> request = make_request(options, prompt);
      request->sink = sink;
      const double begin = now_seconds();
      const ParsedAnswer parsed = follow(engine_.submit(request), *sink, options);
      if (sink->answer().reason == FinishReason::kRefused) fail(ErrorCode::kInvalidArgument, sink->answer().message);
      if (sink->answer().reason == FinishReason::kError) fail(ErrorCode::kInternal, sink->answer().message);
      report(*sink, begin);
      remember(parsed);
      return sink->answer().reason != FinishReason::kAbort || reader_.interactive();
    } catch (const Error& error) {
      messages_.pop_back();
      if (!reader_.interactive()) throw;
      screen_.note(error.what());
      return true;
    }
  }

  ParsedAnswer follow(RequestId id, AnswerSink& sink, const ParserOptions& options) {
    AnswerReader reader(tokenizer_, options);
    ParsedAnswer parsed;
    std::vector<Delta> deltas;
    const auto show = [&] {
      parsed.add(deltas);
      for (const Delta& delta : deltas) screen_.show(delta);
      deltas.clear();
    };
    for (bool finished = false; !finished;) {
      const AnswerSink::News news = sink.wait();
      for (const int32_t token : news.tokens) reader.push(token, deltas);
      show();
      finished = news.finished;
      if (!finished && take_interrupt()) engine_.cancel(id);
    }
    reader.finish(sink.answer().reason == FinishReason::kStop ? AnswerEnd::kStop : AnswerEnd::kLength, deltas);
    show();
    screen_.end_answer();
    take_interrupt();  // one that came too late has nothing left to end
    return parsed;
  }

  // The answer becomes part of the conversation; one that has not begun takes its question with it.
  void remember(const ParsedAnswer& answer) {
    if (answer.content.empty() && answer.reasoning.empty() && answer.calls.empty()) {
      messages_.pop_back();
      return;
    }
    messages_.push_back(text_message(Role::kAssistant, answer.content));
    messages_.back().reasoning = answer.reasoning;
    for (const ParsedAnswer::Call& call : answer.calls) {
      messages_.back().tool_calls.push_back({.id = concat("call_", messages_.size(), "_", &call - answer.calls.data()),
                                             .name = call.name,
                                             .arguments = normalised_arguments(Json(call.arguments))});
    }
    if (!answer.calls.empty()) screen_.note("Give the result of each call with /result TEXT, or go on with a message.");
  }

  void report(const AnswerSink& sink, double begin) const {
    const Usage& usage = sink.answer().usage;
    const double first = sink.answer().first_token - begin;
    const double seconds = sink.answer().last_token - sink.answer().first_token;
    const double rate = seconds > 0 ? static_cast<double>(usage.completion_tokens - 1) / seconds : 0;
    const char* end = sink.answer().reason == FinishReason::kAbort    ? "; cancelled"
                      : sink.answer().reason == FinishReason::kLength ? "; cut: --max-tokens or the context is full"
                                                                      : "";
    char line[200];
    std::snprintf(line, sizeof line,
                  "[%lld tokens at %.1f tok/s, the first after %.2f s; %lld of %lld prompt tokens cached%s]",
                  static_cast<long long>(usage.completion_tokens), rate, std::max(first, 0.0),
                  static_cast<long long>(usage.cached_tokens), static_cast<long long>(usage.prompt_tokens), end);
    screen_.note(line);
  }

  const ChatFlags& flags_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  Thinking thinking_;
  LineReader reader_;
  ChatScreen screen_;
  std::vector<Message> messages_;
  bool left_ = false;
};

// Request memory for one conversation, and as much again for what the prefix cache keeps of it.
EngineSetup setup_for(const ChatFlags& flags, const ModelFiles& files) {
  EngineFlags engine = flags.engine;
  engine.config.max_num_seqs = 1;
  EngineSetup setup = engine_setup(flags.model, engine, files);
  setup.runner.cached_requests = 1;
  return setup;
}

void chat(const ChatFlags& flags) {
  const StopStrings checked(flags.generation.stops);
  chosen_thinking(flags.thinking);
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  const Config& config = files.checkpoint.config();
  Request sampling;
  apply_generation_flags(flags.generation, sampling);
  check_sampling(sampling, config.vocab_size);
  const EngineSetup setup = setup_for(flags, files);
  check_setup(setup, config);
  ModelRunner runner(files, setup.runner);
  Engine engine(runner, setup.engine);
  note_default_model(flags.model);
  catch_every_interrupt();
  const int status = Chat(flags, files.tokenizer, engine).run();
  if (status != 0) throw CLI::RuntimeError(status);
}

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk with the model");
  command->footer(
      "Each line of the input is a message; answers go to stdout as they come, the rest to stderr. Ctrl-C ends an "
      "answer, Ctrl-D the chat; /help lists the commands.\n"
      "Example: echo 'What is a mutex?' | folio chat --model DIR --no-thinking --max-tokens 300");
  const auto flags = std::make_shared<ChatFlags>();
  command->add_option("--system", flags->system, "The system message")->type_name("TEXT");
  command->add_option("--messages", flags->messages, "A JSON file with the messages to go on from, as /save writes it")
      ->type_name("FILE");
  command->add_flag("--no-history", flags->no_history, "Do not keep the typed lines for the next session");
  add_thinking_flags(*command, flags->thinking);
  add_generation_flags(*command, flags->generation);
  add_model_flags(*command, flags->model);
  add_engine_flags(*command, flags->engine);
  // The built-in model is small: what it finds less likely is mostly wrong.
  CLI::Option* temperature = command->get_option("--temperature")->default_str("1; 0 with the built-in model");
  command->callback([flags, temperature] {
    if (means_bundled_model(flags->model) && temperature->count() == 0) flags->generation.sampling.temperature = 0;
    chat(*flags);
  });
}

}  // namespace folio
