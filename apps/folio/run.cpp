// folio run: text in, text out.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "commands.h"
#include "engine/generator.h"
#include "interrupt.h"
#include "model_flags.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/token_ids.h"

namespace folio {
namespace {

constexpr size_t kMaxPromptBytes = size_t{1} << 28;
constexpr int kInterruptedStatus = 130;

struct Flags {
  ModelFlags model;
  std::string prompt, prompt_file, tokens;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* prompt_file_option = nullptr;
  std::vector<std::string> stops;
  GenerateOptions generate;
  bool json = false;
};

std::vector<int32_t> prompt_tokens(const Flags& flags, const Tokenizer& tokenizer) {
  if (*flags.prompt_option) return tokenizer.encode(flags.prompt);
  if (*flags.prompt_file_option) return tokenizer.encode(read_file(flags.prompt_file, kMaxPromptBytes));
  return parse_token_ids(flags.tokens, "--tokens");
}

// What became of the request, for people and for programs.
struct Report {
  std::string text;
  int64_t prompt_tokens = 0;
  Generation generation;
  double load_seconds = 0;

  static double rate(int64_t count, double seconds) {
    return count > 0 && seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
  int64_t completion_tokens() const { return std::ssize(generation.tokens); }
  double prefill_rate() const { return rate(prompt_tokens, generation.prefill_seconds); }
  // The first token belongs to the prefill.
  double decode_rate() const { return rate(completion_tokens() - 1, generation.decode_seconds); }

  void print_json() const {
    const nlohmann::ordered_json report = {{"text", text},
                                           {"tokens", generation.tokens},
                                           {"finish_reason", finish_reason_name(generation.finish)},
                                           {"usage",
                                            {{"prompt_tokens", prompt_tokens},
                                             {"completion_tokens", completion_tokens()},
                                             {"total_tokens", prompt_tokens + completion_tokens()}}},
                                           {"timings",
                                            {{"load_seconds", load_seconds},
                                             {"time_to_first_token_seconds", generation.prefill_seconds},
                                             {"decode_seconds", generation.decode_seconds},
                                             {"prefill_tokens_per_second", prefill_rate()},
                                             {"decode_tokens_per_second", decode_rate()}}}};
    std::printf("%s\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  }
  void print_summary() const {
    std::fprintf(stderr,
                 "\nloaded in %.2f s; %lld prompt tokens, first token after %.2f s (%.1f tok/s); %lld tokens at %.1f "
                 "tok/s; finished: %s\n",
                 load_seconds, static_cast<long long>(prompt_tokens), generation.prefill_seconds, prefill_rate(),
                 static_cast<long long>(completion_tokens()), decode_rate(),
                 std::string(finish_reason_name(generation.finish)).c_str());
  }
};

void run(const Flags& flags) {
  const double start = now_seconds();
  StopStrings stops(flags.stops);
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  const std::vector<int32_t> prompt = prompt_tokens(flags, files.tokenizer);

  // Request memory for this request alone, at least one token of answer.
  RunnerOptions options = runner_options(flags.model);
  const int64_t limit = context_length(files.checkpoint.config(), options.max_model_len);
  options.max_model_len = std::min(limit, std::ssize(prompt) + std::max<int64_t>(1, flags.generate.max_tokens));
  options.max_rows = static_cast<int32_t>(std::clamp<int64_t>(std::ssize(prompt), 1, options.max_rows));
  check_prompt(prompt, files.checkpoint.config(), limit);
  ModelRunner runner(files, options);
  Report report{
      .text = {}, .prompt_tokens = std::ssize(prompt), .generation = {}, .load_seconds = now_seconds() - start};

  catch_interrupts();
  const bool progress = isatty(STDERR_FILENO) != 0 && std::ssize(prompt) > options.max_rows;
  const auto show = [&](const std::string& text) {
    report.text += text;
    if (flags.json) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  Detokenizer detokenizer(files.tokenizer);
  const auto on_token = [&](int32_t token) {
    show(stops.push(detokenizer.push(token)));
    if (interrupted()) return Verdict::kAbort;
    return stops.stopped() ? Verdict::kStop : Verdict::kContinue;
  };
  const auto on_prefill = [&](int64_t done) {
    if (progress) std::fprintf(stderr, "\rprefill: %lld of %zu tokens", static_cast<long long>(done), prompt.size());
    if (progress && done == std::ssize(prompt)) std::fputc('\n', stderr);
    return interrupted() ? Verdict::kAbort : Verdict::kContinue;
  };
  report.generation = generate(runner, prompt, flags.generate, on_token, on_prefill);
  show(stops.push(detokenizer.flush()));
  show(stops.flush());

  flags.json ? report.print_json() : report.print_summary();
  if (report.generation.finish == FinishReason::kAbort) throw CLI::RuntimeError(kInterruptedStatus);
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Generate text from a prompt");
  command->footer(
      "The prompt is raw text: special tokens spelled in it are matched and nothing is added to it. The answer goes to "
      "stdout as it comes, a summary to stderr.\n"
      "Example: folio run --prompt \"Once upon a time\" --max-tokens 64 --temperature 0.8 --seed 7");
  const auto flags = std::make_shared<Flags>();
  auto* prompt = command->add_option_group("Prompt", "one of");
  flags->prompt_option = prompt->add_option("--prompt", flags->prompt, "Prompt text")->type_name("TEXT");
  flags->prompt_file_option =
      prompt->add_option("--prompt-file", flags->prompt_file, "File with the prompt text")->type_name("FILE");
  prompt->add_option("--tokens", flags->tokens, "Prompt as token ids, separated by commas or white space")
      ->type_name("IDS");
  prompt->require_option(1);

  const std::string group = "Generation";
  SamplingParams& sampling = flags->generate.sampling;
  sampling.temperature = 0;
  command->add_option("--max-tokens", flags->generate.max_tokens, "Most tokens to generate")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->group(group);
  command->add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->type_name("T")
      ->check(CLI::Range(0.0, 100.0))
      ->group(group);
  command->add_option("--top-p", sampling.top_p, "Most likely tokens that hold this share of the probability")
      ->type_name("P")
      ->check(CLI::Range(1e-6, 1.0))
      ->group(group);
  command->add_option("--top-k", sampling.top_k, "This many most likely tokens; 0 or -1: all")
      ->type_name("K")
      ->check(CLI::Range(-1, 1 << 30))
      ->group(group);
  command->add_option("--min-p", sampling.min_p, "Tokens at least this likely, relative to the most likely one")
      ->type_name("P")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  command->add_option("--seed", sampling.seed, "Seed of the draws; the same seed gives the same text")
      ->type_name("N")
      ->group(group);
  command->add_option("--stop", flags->stops, "End before this text; may be repeated")
      ->type_name("TEXT")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command->add_flag("--ignore-eos", flags->generate.ignore_eos, "Go on after the end-of-sentence token")->group(group);
  command->add_flag("--json", flags->json, "Print one JSON object instead of the text")->group(group);
  add_model_flags(*command, flags->model);
  command
      ->add_option("--max-model-len", flags->model.runner.max_model_len,
                   "Most tokens of prompt and answer; 0: the model's limit")
      ->type_name("N")
      ->group("Model and machine");
  command->callback([flags] { run(*flags); });
}

}  // namespace folio
