// folio batch: many requests from a file, all through one engine.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "batch_lines.h"
#include "commands.h"
#include "engine/engine.h"
#include "engine_flags.h"
#include "generation_flags.h"
#include "interrupt.h"
#include "model_flags.h"
#include "token_logprobs.h"
#include "tokenizer/stop_policy.h"

namespace folio {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 28;
// Choices that the engine has at once: enough to keep it busy, little enough for a file of any length.
constexpr int64_t kMostAtOnce = 1024;

struct BatchFlags {
  ModelFlags model;
  EngineFlags engine;
  GenerationFlags generation;
  std::string input, output;
  bool verbose = false;
};

struct Source {
  nlohmann::json id;
  int64_t number = 0;  // of its line
  std::vector<std::string> stops;
  int32_t logprobs = 0;  // most likely ids to report with each token; 0: no log-probabilities
};

struct Finished {
  std::shared_ptr<const Source> source;
  int32_t choice = 0;
  std::vector<TokenLogprob> tokens;
  FinishReason reason = FinishReason::kAbort;
  Usage usage;
  std::string message;
};

// Finished choices on their way from the engine's thread to the one that writes.
class Results {
 public:
  void push(Finished finished) {
    const std::lock_guard lock(mutex_);
    finished_.push_back(std::move(finished));
    arrived_.notify_one();
  }
  // All that have come, after a while at the latest.
  std::deque<Finished> wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::milliseconds(100), [&] { return !finished_.empty(); });
    return std::exchange(finished_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Finished> finished_;
};

class Collector final : public Sink {
 public:
  Collector(Results& results, std::shared_ptr<const Source> source, int32_t choices)
      : results_(results), source_(std::move(source)), tokens_(static_cast<size_t>(choices)) {}
  void on_token(int32_t choice, const TokenOutput& token) override {
    tokens_[static_cast<size_t>(choice)].push_back(TokenLogprob::kept(token));
  }
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) override {
    results_.push({.source = source_,
                   .choice = choice,
                   .tokens = std::move(tokens_[static_cast<size_t>(choice)]),
                   .reason = reason,
                   .usage = usage,
                   .message = message});
  }

 private:
  Results& results_;
  std::shared_ptr<const Source> source_;
  std::vector<std::vector<TokenLogprob>> tokens_;
};

int64_t count_lines(const std::string& path) {
  BatchInput input(path);
  std::string line;
  int64_t count = 0;
  while (input.next(line)) ++count;
  return count;
}

struct Totals {
  int64_t lines = 0, taken = 0;  // of the input
  int64_t skipped = 0;           // lines whose results were there
  int64_t choices = 0, failed = 0, hits = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
};

class Batch {
 public:
  Batch(const BatchFlags& flags, const ModelFiles& files, Engine& engine, Results& results, BatchOutput& output)
      : flags_(flags), files_(files), engine_(engine), results_(results), output_(output), input_(flags.input) {
    totals_.lines = count_lines(flags.input);
  }

  void run() {
    const bool progress = isatty(STDERR_FILENO) != 0;
    start_ = now_seconds();
    for (bool more = true; more || unfinished_ > 0;) {
      while (more && unfinished_ < kMostAtOnce && !interrupted()) more = take_line();
      if (interrupted() || engine_failed_) {
        more = false;
        for (const RequestId id : std::exchange(submitted_, {})) engine_.cancel(id);
      }
      for (const Finished& finished : results_.wait()) write(finished);
      if (progress) show_progress();
    }
    if (progress) std::fprintf(stderr, "\r\033[K");
    print_summary();
  }
  bool failed() const { return totals_.failed > 0 || engine_failed_; }

 private:
  // Submits the next line; false at the end.
  bool take_line() {
    std::string text;
    if (!input_.next(text)) return false;
    ++totals_.taken;
    nlohmann::json id = input_.number();
    try {
      if (text.size() > kMaxLineBytes) fail(ErrorCode::kInvalidArgument, "the line is too long");
      const nlohmann::json line = parse_line(text);
      const nlohmann::json named = line_id(line, input_.number());
      if (!ids_.insert(named.dump()).second) {
        fail(ErrorCode::kInvalidArgument, "the id ", named.dump(), " is that of an earlier line");
      }
      id = named;
      submit(batch_request(line, flags_.generation, files_.tokenizer), id);
    } catch (const Error& error) {
      engine_failed_ = engine_failed_ || error.code() == ErrorCode::kUnavailable;
      write_error(id, 0, input_.number(), error.what());
    }
    return true;
  }

  void submit(const BatchRequest& batch, const nlohmann::json& id) {
    const int32_t choices = batch.request->choices;
    bool done = choices >= 1 && choices <= kMaxChoices;
    for (int32_t choice = 0; done && choice < choices; ++choice) done = output_.contains(id, choice);
    if (done) {
      ++totals_.skipped;
      return;
    }
    const auto source = std::make_shared<Source>(
        Source{.id = id, .number = input_.number(), .stops = batch.stops, .logprobs = batch.request->logprobs});
    batch.request->sink = std::make_shared<Collector>(results_, source, std::clamp(choices, 0, kMaxChoices));
    if (choices <= kMaxChoices) batch.request->policies = stop_policies(files_.tokenizer, batch.stops, choices);
    submitted_.push_back(engine_.submit(batch.request));
    unfinished_ += choices;
    // Ids that have finished are of no use; cancelling them does nothing.
    while (std::ssize(submitted_) > 2 * kMostAtOnce) submitted_.pop_front();
  }

  void write(const Finished& finished) {
    --unfinished_;
    const Source& source = *finished.source;
    switch (finished.reason) {
      case FinishReason::kAbort:  // comes anew when the batch is resumed
        return;
      case FinishReason::kRefused:
      case FinishReason::kError:
        engine_failed_ = engine_failed_ || finished.reason == FinishReason::kError;
        return write_error(source.id, finished.choice, source.number, finished.message);
      case FinishReason::kLength:
      case FinishReason::kStop:
        break;
    }
    if (output_.contains(source.id, finished.choice)) return;  // a sibling was missing
    AnswerText answer(files_.tokenizer, source.stops);
    std::string text;
    std::vector<int32_t> ids;
    for (const TokenLogprob& token : finished.tokens) {
      text += answer.push(token.id);
      ids.push_back(token.id);
    }
    text += answer.finish();
    nlohmann::ordered_json line = result_line(source.id, finished.choice, text, ids, finished.reason, finished.usage);
    if (source.logprobs > 0) line["logprobs"] = logprobs_json(finished.tokens, source.logprobs);
    output_.write(line);
    ++totals_.choices;
    totals_.hits += finished.usage.cached_tokens > 0 ? 1 : 0;
    totals_.prompt_tokens += finished.choice == 0 ? finished.usage.prompt_tokens : 0;
    totals_.cached_tokens += finished.choice == 0 ? finished.usage.cached_tokens : 0;
    totals_.tokens += finished.usage.completion_tokens;
  }

  void write_error(const nlohmann::json& id, int32_t choice, int64_t number, const std::string& message) {
    ++totals_.failed;
    output_.write(error_line(id, choice, number, message));
  }

  void show_progress() {
    const double now = now_seconds();
    if (now - shown_ < 0.5) return;
    shown_ = now;
    const EngineStats stats = engine_.stats();
    const int64_t decoded =
        stats.decode_rows - stats.speculation.drafted_tokens() + stats.speculation.accepted_tokens();
    std::fprintf(stderr, "\r\033[Kbatch: %lld of %lld lines, %lld running, %lld waiting, %lld decoded, %.1f tok/s",
                 static_cast<long long>(totals_.taken), static_cast<long long>(totals_.lines),
                 static_cast<long long>(stats.running), static_cast<long long>(stats.waiting),
                 static_cast<long long>(decoded), static_cast<double>(decoded) / (now - start_));
  }

  void print_summary() {
    engine_.drain();
    const EngineStats stats = engine_.stats();
    const double seconds = now_seconds() - start_;
    std::fprintf(
        stderr,
        "%lld answers, %lld lines skipped, %lld failed; %lld prompt tokens, %lld from the prefix cache in %lld "
        "hits; %lld tokens in %.2f s, %.1f tok/s; %lld preemptions\n",
        static_cast<long long>(totals_.choices), static_cast<long long>(totals_.skipped),
        static_cast<long long>(totals_.failed), static_cast<long long>(totals_.prompt_tokens),
        static_cast<long long>(totals_.cached_tokens), static_cast<long long>(totals_.hits),
        static_cast<long long>(totals_.tokens), seconds, static_cast<double>(totals_.tokens) / seconds,
        static_cast<long long>(stats.preempted));
    if (const std::string summary = speculation_summary(stats.speculation); !summary.empty()) {
      std::fprintf(stderr, "speculation: %s\n", summary.c_str());
    }
    if (!flags_.verbose) return;
    std::fprintf(stderr, "%lld steps, %.0f us of host time each; %lld prefill rows, %lld decode rows\n",
                 static_cast<long long>(stats.steps), 1e6 * stats.host_seconds_per_step(),
                 static_cast<long long>(stats.prefill_rows), static_cast<long long>(stats.decode_rows));
    std::fprintf(
        stderr, "prefix cache: %lld of %lld tokens found, %lld of these lost for want of state; %lld blocks evicted\n",
        static_cast<long long>(stats.prefix_matched_tokens), static_cast<long long>(stats.prefix_queried_tokens),
        static_cast<long long>(stats.prefix_matched_tokens - stats.prefix_hit_tokens),
        static_cast<long long>(stats.prefix_evicted_blocks));
    std::fprintf(stderr, "state images: %lld kept, %lld given up; %lld of %lld preempted requests went on from one\n",
                 static_cast<long long>(stats.images_kept), static_cast<long long>(stats.images_evicted),
                 static_cast<long long>(stats.resumed), static_cast<long long>(stats.preempted));
    std::fprintf(stderr, "%.2f s in the model, %.2f s in the draft head\n", stats.run_seconds, stats.draft_seconds);
  }

  const BatchFlags& flags_;
  const ModelFiles& files_;
  Engine& engine_;
  Results& results_;
  BatchOutput& output_;
  BatchInput input_;
  Totals totals_;
  std::set<std::string> ids_;
  std::deque<RequestId> submitted_;
  int64_t unfinished_ = 0;  // choices
  bool engine_failed_ = false;
  double start_ = 0, shown_ = 0;
};

void batch(const BatchFlags& flags) {
  const StopStrings checked(flags.generation.stops);
  std::error_code ignored;
  if (std::filesystem::equivalent(flags.input, flags.output, ignored)) {
    fail(ErrorCode::kInvalidArgument, "--input and --output are the same file ", flags.input);
  }
  static_cast<void>(BatchInput(flags.input));
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  EngineSetup setup = engine_setup(flags.model, flags.engine, files);
  setup.runner.cached_requests = setup.runner.max_num_seqs;
  check_setup(setup, files.checkpoint.config());
  BatchOutput output(flags.output);
  ModelRunner runner(files, setup.runner);
  if (flags.verbose) std::fputs(capacity_table(runner.capacity()).c_str(), stderr);

  note_default_model(flags.model);
  note_acceptance(setup.engine);
  catch_interrupts();
  Results results;  // outlives the engine, whose thread pushes into it
  Engine engine(runner, setup.engine);
  Batch work(flags, files, engine, results, output);
  work.run();
  check_interrupt();
  if (work.failed()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_batch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("batch", "Answer many requests from a file");
  command->footer(
      "Each line of the input is a JSON object: \"prompt\" (raw text) or \"tokens\" (ids), and, if they differ from "
      "the flags, \"max_tokens\", \"min_tokens\", \"temperature\", \"top_p\", \"top_k\", \"min_p\", \"seed\", "
      "\"repetition_penalty\", \"frequency_penalty\", \"presence_penalty\", \"logit_bias\" ({\"ID\": DELTA}), "
      "\"logprobs\" (so "
      "many of the most likely ids of each token), \"stop\", \"ignore_eos\", \"n\" and \"exact\". "
      "\"id\" (default: the line's number) names it in the output, which gets one line per answer in the order in "
      "which they end. Started again, it goes on: answers that are in the output are not computed again. Exit status 1 "
      "when "
      "a line could not be answered.\n"
      "Example: folio batch --input questions.jsonl --output answers.jsonl --max-tokens 64");
  const auto flags = std::make_shared<BatchFlags>();
  command->add_option("--input", flags->input, "Requests, one JSON object a line")->type_name("F.jsonl")->required();
  command->add_option("--output", flags->output, "Results, one JSON object a line")->type_name("F.jsonl")->required();
  command->add_flag("--verbose", flags->verbose, "Print what the memory holds, and more about the engine");
  add_generation_flags(*command, flags->generation);
  add_model_flags(*command, flags->model);
  add_engine_flags(*command, flags->engine);
  command->callback([flags] { batch(*flags); });
}

}  // namespace folio
