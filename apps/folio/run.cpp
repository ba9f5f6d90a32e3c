// folio run: text in, text out.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "answer_sink.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "commands.h"
#include "engine/engine.h"
#include "engine_flags.h"
#include "generation_flags.h"
#include "interrupt.h"
#include "json_line.h"
#include "model_flags.h"
#include "tokenizer/stop_policy.h"
#include "tokenizer/token_ids.h"

namespace folio {
namespace {

constexpr size_t kMaxPromptBytes = size_t{1} << 28;
constexpr int32_t kMostHeadRows = 256;  // of a step that gives log-probabilities of a prompt

struct RunFlags {
  ModelFlags model;
  EngineFlags engine;
  GenerationFlags generation;
  std::string prompt, prompt_file, tokens;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* prompt_file_option = nullptr;
  int32_t logprobs = 0;
  int32_t prompt_logprobs = 0;
  CLI::Option* prompt_logprobs_option = nullptr;
  bool json = false;
};

std::vector<int32_t> prompt_tokens(const RunFlags& flags, const Tokenizer& tokenizer) {
  if (*flags.prompt_option) return tokenizer.encode(flags.prompt);
  if (*flags.prompt_file_option) return tokenizer.encode(read_file(flags.prompt_file, kMaxPromptBytes));
  return parse_token_ids(flags.tokens, "--tokens");
}

// What became of the request, for people and for programs.
struct Report {
  std::string text;
  std::vector<int32_t> tokens;
  nlohmann::ordered_json logprobs, prompt_logprobs;  // null: not asked for
  FinishReason finish = FinishReason::kAbort;
  Usage usage;
  double load_seconds = 0;
  double prefill_seconds = 0;  // until the first token, or the end
  double decode_seconds = 0;   // from the first token to the last
  EngineStats engine;

  static double rate(int64_t count, double seconds) {
    return count > 0 && seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
  double prefill_rate() const { return rate(usage.prompt_tokens, prefill_seconds); }
  // The first token belongs to the prefill.
  double decode_rate() const { return rate(usage.completion_tokens - 1, decode_seconds); }

  void print_json() const {
    nlohmann::ordered_json report = {{"text", text},
                                     {"tokens", tokens},
                                     {"finish_reason", finish_reason_name(finish)},
                                     {"usage",
                                      {{"prompt_tokens", usage.prompt_tokens},
                                       {"completion_tokens", usage.completion_tokens},
                                       {"total_tokens", usage.prompt_tokens + usage.completion_tokens}}},
                                     {"replay", replay_json(usage)},
                                     {"speculation", speculation_json(usage)},
                                     {"timings",
                                      {{"load_seconds", load_seconds},
                                       {"time_to_first_token_seconds", prefill_seconds},
                                       {"decode_seconds", decode_seconds},
                                       {"prefill_tokens_per_second", prefill_rate()},
                                       {"decode_tokens_per_second", decode_rate()}}}};
    if (!logprobs.is_null()) report["logprobs"] = logprobs;
    if (!prompt_logprobs.is_null()) report["prompt_logprobs"] = prompt_logprobs;
    std::printf("%s\n", json_line(report).c_str());
  }
  void print_summary() const {
    std::fprintf(stderr,
                 "\nloaded in %.2f s; %lld prompt tokens, first token after %.2f s (%.1f tok/s); %lld tokens at %.1f "
                 "tok/s; finished: %s\n",
                 load_seconds, static_cast<long long>(usage.prompt_tokens), prefill_seconds, prefill_rate(),
                 static_cast<long long>(usage.completion_tokens), decode_rate(),
                 std::string(finish_reason_name(finish)).c_str());
    if (engine.speculation.verifications == 0 && engine.speculation.skipped_steps == 0) return;
    std::fprintf(stderr, "speculation: %s; draft head %.2f s, verification %.2f s%s\n",
                 speculation_summary(engine.speculation).c_str(), engine.draft_seconds, engine.verify_seconds,
                 usage.forced_acceptance ? "; acceptance was forced, the text means nothing" : "");
  }
};

// Request memory for this request alone, at least one token of answer.
EngineSetup setup_for(const RunFlags& flags, const ModelFiles& files, int64_t prompt) {
  EngineFlags engine = flags.engine;
  engine.config.max_num_seqs = 1;
  EngineSetup setup = engine_setup(flags.model, engine, files);
  RunnerOptions& runner = setup.runner;
  runner.max_model_len = std::min(runner.max_model_len, prompt + flags.generation.max_tokens);
  runner.max_rows =
      static_cast<int32_t>(std::min<int64_t>(runner.max_rows, std::max<int64_t>(1 + runner.max_head_rows, prompt)));
  setup.engine.max_num_batched_tokens = runner.max_rows;
  if (*flags.prompt_logprobs_option) runner.max_head_rows = std::min(runner.max_rows, kMostHeadRows);
  return setup;
}

void show_prefill(int64_t done, int64_t prompt) {
  std::fprintf(stderr, "\rprefill: %lld of %lld tokens", static_cast<long long>(done), static_cast<long long>(prompt));
  if (done == prompt) std::fputc('\n', stderr);
}

// Follows the answer until it is finished.
void follow(Engine& engine, RequestId id, AnswerSink& answer, bool progress, const RunFlags& flags,
            const Tokenizer& tokenizer, int64_t prompt, Report& report) {
  AnswerText text(tokenizer, flags.generation.stops);
  const auto show = [&](const std::string& part) {
    report.text += part;
    if (flags.json) return;
    std::fwrite(part.data(), 1, part.size(), stdout);
    std::fflush(stdout);
  };
  bool cancelled = false;
  for (int64_t prefilled = 0;;) {
    const AnswerSink::News news = answer.wait();
    if (progress && news.prefilled > prefilled) show_prefill(prefilled = news.prefilled, prompt);
    for (const int32_t token : news.tokens) {
      report.tokens.push_back(token);
      show(text.push(token));
    }
    if (news.finished) break;
    if (interrupted() && !cancelled) {
      cancelled = true;
      engine.cancel(id);
    }
  }
  show(text.finish());
}

void run(const RunFlags& flags) {
  const double start = now_seconds();
  const StopStrings checked(flags.generation.stops);
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  const Config& config = files.checkpoint.config();
  const std::vector<int32_t> prompt = prompt_tokens(flags, files.tokenizer);
  check_prompt(prompt, config, context_length(config, flags.engine.max_model_len));
  const auto request = std::make_shared<Request>();
  apply_generation_flags(flags.generation, *request);
  request->logprobs = std::max(flags.logprobs, flags.prompt_logprobs);
  request->wants_prompt_rows = flags.prompt_logprobs_option->count() > 0;
  check_sampling(*request, config.vocab_size);
  const EngineSetup setup = setup_for(flags, files, std::ssize(prompt));
  check_setup(setup, config);
  ModelRunner runner(files, setup.runner);
  Engine engine(runner, setup.engine);
  Report report;
  report.load_seconds = now_seconds() - start;

  note_default_model(flags.model);
  note_acceptance(setup.engine);
  catch_interrupts();
  const auto answer = std::make_shared<AnswerSink>();
  request->prompt = prompt;
  request->policies = stop_policies(files.tokenizer, flags.generation.stops, 1);
  request->sink = answer;
  const bool progress = isatty(STDERR_FILENO) != 0 && std::ssize(prompt) > setup.runner.max_rows;
  const double submitted = now_seconds();
  const RequestId id = engine.submit(request);
  follow(engine, id, *answer, progress, flags, files.tokenizer, std::ssize(prompt), report);
  engine.drain();

  report.finish = answer->answer().reason;
  report.usage = answer->answer().usage;
  if (flags.logprobs > 0) report.logprobs = logprobs_json(answer->answer().tokens, flags.logprobs);
  if (request->wants_prompt_rows) {
    report.prompt_logprobs = logprobs_json(answer->answer().prompt_logprobs, flags.prompt_logprobs);
  }
  if (report.finish == FinishReason::kRefused) fail(ErrorCode::kInvalidArgument, answer->answer().message);
  if (report.finish == FinishReason::kError) fail(ErrorCode::kInternal, answer->answer().message);
  report.prefill_seconds = (report.tokens.empty() ? now_seconds() : answer->answer().first_token) - submitted;
  report.decode_seconds = answer->answer().last_token - answer->answer().first_token;
  report.engine = engine.stats();
  flags.json ? report.print_json() : report.print_summary();
  if (report.finish == FinishReason::kAbort) throw CLI::RuntimeError(kInterruptedStatus);
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Generate text from a prompt");
  command->footer(
      "The prompt is raw text: special tokens spelled in it are matched and nothing is added to it. The answer goes to "
      "stdout as it comes, a summary to stderr.\n"
      "Example: folio run --prompt \"Once upon a time\" --max-tokens 64 --temperature 0.8 --seed 7");
  const auto flags = std::make_shared<RunFlags>();
  auto* prompt = command->add_option_group("Prompt", "one of");
  flags->prompt_option = prompt->add_option("--prompt", flags->prompt, "Prompt text")->type_name("TEXT");
  flags->prompt_file_option =
      prompt->add_option("--prompt-file", flags->prompt_file, "File with the prompt text")->type_name("FILE");
  prompt->add_option("--tokens", flags->tokens, "Prompt as token ids, separated by commas or white space")
      ->type_name("IDS");
  prompt->require_option(1);

  add_generation_flags(*command, flags->generation);
  command
      ->add_option("--logprobs", flags->logprobs,
                   "With --json: each token's log-probability and so many of the most likely ids, up to 20")
      ->type_name("N")
      ->group("Generation");
  flags->prompt_logprobs_option =
      command
          ->add_option("--prompt-logprobs", flags->prompt_logprobs,
                       "With --json: the log-probability of each prompt token but the first and so many of the most "
                       "likely ids, up to 20. Runs every row of the prompt through all layers, as --exact does")
          ->type_name("N")
          ->check(CLI::Range(0, kMaxTopLogprobs))
          ->group("Generation");
  command->add_flag("--json", flags->json, "Print one JSON object instead of the text")->group("Generation");
  add_model_flags(*command, flags->model);
  add_engine_flags(*command, flags->engine);
  command->callback([flags] { run(*flags); });
}

}  // namespace folio
