// folio export-hidden: hidden states of prompts as safetensors files, for training drafters.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "batch_lines.h"
#include "checkpoint/safetensors.h"
#include "commands.h"
#include "engine/engine_core.h"
#include "engine/hidden_rows.h"
#include "interrupt.h"
#include "model_flags.h"
#include "tokenizer/token_ids.h"

namespace folio {
namespace {

namespace fs = std::filesystem;

struct ExportHiddenFlags {
  ModelFlags model;
  std::string prompt, tokens_file, input, output;
  std::vector<int> layers;  // none: those that the model's draft head taps
  bool final_rows = true;
  int64_t max_model_len = 0;
  int32_t max_num_seqs = 8;
};

// A prompt and the file that its rows go to.
struct Job {
  int64_t number = 0;  // of its line, from 1
  std::string id;
  std::vector<int32_t> tokens;
  std::string path;
};

std::vector<std::string> tensor_names(const ExportHiddenFlags& flags, const Config& config) {
  std::vector<std::string> names;
  for (const int layer : flags.layers.empty() ? config.dspark_target_layer_ids : flags.layers) {
    names.push_back(concat("tap.", layer));
  }
  if (flags.final_rows) names.emplace_back("hidden");
  for (const std::string& name : names) check_hidden_tensor(name, config);
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size()) {
    fail(ErrorCode::kInvalidArgument, "--layers names a layer twice");
  }
  if (names.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the model has no draft head to take layers from, and --no-final leaves nothing: ", "name some with --layers");
  }
  return names;
}

// Calls take(job) for every prompt in turn, until it returns false.
void for_each_job(const ExportHiddenFlags& flags, const Tokenizer& tokenizer, const std::function<bool(Job)>& take) {
  constexpr size_t kMaxTokensFile = size_t{1} << 28;
  if (flags.input.empty()) {
    Job job{.number = 1, .id = "1", .tokens = {}, .path = flags.output};
    job.tokens = flags.tokens_file.empty()
                     ? tokenizer.encode(flags.prompt)
                     : parse_token_ids(read_file(flags.tokens_file, kMaxTokensFile), flags.tokens_file);
    take(std::move(job));
    return;
  }
  BatchInput input(flags.input);
  for (std::string text; input.next(text);) {
    Job job{.number = input.number(), .id = {}, .tokens = {}, .path = {}};
    try {
      const nlohmann::json line = parse_line(text);
      const nlohmann::json id = line_id(line, job.number);
      job.id = id.is_string() ? id.get<std::string>() : id.dump();
      job.tokens = batch_request(line, {}, tokenizer).request->prompt;
    } catch (const Error& error) {
      fail(error.code(), flags.input, " line ", job.number, ": ", error.what());
    }
    char name[32];
    std::snprintf(name, sizeof name, "%06lld.safetensors", static_cast<long long>(job.number));
    job.path = fs::path(flags.output) / name;
    if (!take(std::move(job))) return;
  }
}

// Writes the rows of one prompt as they come.
class FileSink final : public Sink {
 public:
  FileSink(const Job& job, const std::vector<std::string>& names, int64_t hidden,
           const std::map<std::string, std::string>& metadata)
      : number_(job.number), hidden_(hidden) {
    const auto length = std::ssize(job.tokens);
    std::vector<SafetensorsWriter::Tensor> tensors = {{"tokens", DType::kI32, {length}}};
    for (const std::string& name : names) tensors.push_back({name, DType::kBF16, {length, hidden}});
    writer_ = std::make_unique<SafetensorsWriter>(job.path, tensors, metadata);
    writer_->write("tokens", std::span<const int32_t>(job.tokens));
  }

  void on_token(int32_t, const TokenOutput&) override {}
  void on_prefill(int32_t, int64_t done, const Usage&) override { rows_ = done; }
  void on_hidden_rows(const std::string& tensor, int64_t position, std::span<const bf16> rows) override {
    guarded([&] {
      int64_t& done = done_[tensor];
      const int64_t end = position + std::ssize(rows) / hidden_;
      if (end <= done) return;  // again, after a preemption
      writer_->write(tensor, rows.subspan(static_cast<size_t>((done - position) * hidden_)),
                     done * hidden_ * dtype_size(DType::kBF16));
      done = end;
    });
  }
  void on_finish(int32_t, FinishReason reason, const Usage&, const std::string& message) override {
    finished_ = true;
    if (reason != FinishReason::kLength) {
      guarded(
          [&] { fail(ErrorCode::kUnavailable, "prompt ", number_, ": ", finish_reason_name(reason), ": ", message); });
    }
    if (failure_ == nullptr) guarded([&] { writer_->finish(); });
  }

  bool finished() const { return finished_; }
  int64_t rows() const { return rows_; }
  // Throws what went wrong, if something did: a sink may not.
  void check() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void guarded(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  int64_t number_, hidden_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::map<std::string, int64_t> done_;  // rows of each tensor
  int64_t rows_ = 0;
  bool finished_ = false;
  std::exception_ptr failure_;
};

// Whether the file of a job is there already, made from the same prompt in the same way.
bool is_done(const Job& job, const std::map<std::string, std::string>& metadata) {
  std::error_code ignored;
  if (!fs::is_regular_file(job.path, ignored)) return false;
  try {
    const SafetensorsFile file(job.path);
    const SafetensorsEntry* tokens = file.find("tokens");
    if (tokens == nullptr || tokens->dtype != DType::kI32 || file.header().metadata != metadata) return false;
    const TensorView view = file.view(*tokens);
    return std::equal(job.tokens.begin(), job.tokens.end(), view.as<int32_t>(),
                      view.as<int32_t>() + view.shape.elements());
  } catch (const Error&) {
    return false;
  }
}

class Export {
 public:
  Export(const ExportHiddenFlags& flags, const ModelFiles& files, std::vector<std::string> names)
      : flags_(flags), files_(files), names_(std::move(names)) {
    // Everything that can be known is known before the weights are read.
    const int64_t longest = context_length(files.checkpoint.config(), flags.max_model_len);
    for_each_job(flags, files.tokenizer, [&](const Job& job) {
      try {
        check_prompt(job.tokens, files.checkpoint.config(), longest);
      } catch (const Error& error) {
        fail(error.code(), "prompt ", job.number, ": ", error.what());
      }
      ++prompts_;
      all_rows_ += std::ssize(job.tokens);
      return true;
    });
    if (prompts_ == 0) fail(ErrorCode::kInvalidArgument, flags.input, " holds no prompt");
    if (!flags.input.empty()) make_directory();
  }

  void run(ModelRunner& runner, const EngineConfig& config) {
    EngineCore core(runner, config);
    metadata_ = {
        {"model", files_.checkpoint.dir()}, {"ops", runner.ops_name()}, {"cache", runner.geometry().identity()}};
    progress_ = isatty(STDERR_FILENO) != 0;
    RequestId next = 0;
    for_each_job(flags_, files_.tokenizer, [&](Job job) {
      start(core, next++, std::move(job));
      while (std::ssize(sinks_) >= config.max_num_seqs) step(core);
      return true;
    });
    while (!sinks_.empty()) step(core);
    if (progress_) std::fprintf(stderr, "\r\033[K");
    std::string names;
    for (const std::string& name : names_) names += (names.empty() ? "" : ", ") + name;
    std::printf("%s: %lld prompts, %lld rows of %s; %lld prompts were there already\n", flags_.output.c_str(),
                static_cast<long long>(prompts_ - skipped_), static_cast<long long>(done_rows_), names.c_str(),
                static_cast<long long>(skipped_));
  }

 private:
  void make_directory() const {
    std::error_code error;
    fs::create_directories(flags_.output, error);
    if (!fs::is_directory(flags_.output, error)) {
      fail(ErrorCode::kInvalidArgument, "--output ", flags_.output, ": cannot make this directory");
    }
  }

  void start(EngineCore& core, RequestId id, Job job) {
    std::map<std::string, std::string> metadata = metadata_;
    metadata["id"] = job.id;
    if (!flags_.input.empty() && is_done(job, metadata)) {
      ++skipped_;
      return;
    }
    const auto sink = std::make_shared<FileSink>(job, names_, files_.checkpoint.config().hidden_size, metadata);
    auto request = std::make_shared<Request>();
    request->prompt = std::move(job.tokens);
    request->sampling.temperature = 0;
    request->max_tokens = 1;
    request->ignore_eos = true;
    request->hidden_rows = names_;
    request->sink = sink;
    core.submit(id, request);
    sinks_.push_back(sink);
  }

  void step(EngineCore& core) {
    check_interrupt();
    core.step();
    for (const auto& sink : sinks_) {
      sink->check();
      if (sink->finished()) done_rows_ += sink->rows();
    }
    std::erase_if(sinks_, [](const auto& sink) { return sink->finished(); });
    if (progress_) show_progress();
  }

  void show_progress() {
    if (now_seconds() - shown_ < 0.5) return;
    shown_ = now_seconds();
    int64_t rows = done_rows_;
    for (const auto& sink : sinks_) rows += sink->rows();
    std::fprintf(stderr, "\r\033[Kexport-hidden: %lld of %lld rows", static_cast<long long>(rows),
                 static_cast<long long>(all_rows_));
  }

  const ExportHiddenFlags& flags_;
  const ModelFiles& files_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::shared_ptr<FileSink>> sinks_;  // of requests that run
  int64_t prompts_ = 0, skipped_ = 0;
  int64_t all_rows_ = 0, done_rows_ = 0;
  bool progress_ = false;
  double shown_ = 0;
};

void export_hidden(const ExportHiddenFlags& flags) {
  const int sources =
      (flags.prompt.empty() ? 0 : 1) + (flags.tokens_file.empty() ? 0 : 1) + (flags.input.empty() ? 0 : 1);
  if (sources != 1) fail(ErrorCode::kInvalidArgument, "give one of --prompt, --tokens-file and --input");
  RunnerOptions options = runner_options(flags.model);
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  Export work(flags, files, tensor_names(flags, files.checkpoint.config()));
  options.max_model_len = flags.max_model_len;
  options.max_num_seqs = flags.max_num_seqs;
  options.max_head_rows = flags.max_num_seqs;
  const EngineConfig config{.max_num_seqs = flags.max_num_seqs,
                            .max_num_batched_tokens = options.max_rows,
                            .prefix_cache = false,
                            .decoder_replay = false,
                            .encoder_replay = false};
  note_default_model(flags.model);
  ModelRunner runner(files, options);
  catch_interrupts();
  work.run(runner, config);
}

}  // namespace

void add_export_hidden(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export-hidden", "Write hidden states of prompts, to train drafters on");
  command->footer(
      "A safetensors file for each prompt: `tokens` I32 [n], for each layer L `tap.L` BF16 [n, hidden_size], the mean "
      "over "
      "the streams of what enters layer L, and `hidden` BF16 [n, hidden_size], what the head's norm sees. Every row "
      "runs "
      "in every layer, without bounded replay and prefix hits; chunks and company change no bit. Lines of --input are "
      "those of folio batch; line N goes to N.safetensors in the directory --output, its id is in the file's metadata. "
      "Started again, it leaves files alone that are there already.\n"
      "Example: folio export-hidden --prompt 'Once upon a time' --output rows.safetensors");
  const auto flags = std::make_shared<ExportHiddenFlags>();
  command->add_option("--prompt", flags->prompt, "Text of the prompt")->type_name("TEXT");
  command->add_option("--tokens-file", flags->tokens_file, "Token ids, separated by white space or commas")
      ->type_name("FILE");
  command->add_option("--input", flags->input, "Prompts, one JSON object a line")->type_name("F.jsonl");
  command->add_option("--output", flags->output, "The file to write; with --input a directory for the files")
      ->type_name("FILE|DIR")
      ->required();
  command->add_option("--layers", flags->layers, "Layers to tap (default: those that the model's draft head reads)")
      ->type_name("L,L,...")
      ->delimiter(',');
  command->add_flag("--final,!--no-final", flags->final_rows, "Write `hidden` too (default: on)");
  command->add_option("--max-model-len", flags->max_model_len, "Most tokens of a prompt, and one; 0: the model's limit")
      ->type_name("N");
  command->add_option("--max-num-seqs", flags->max_num_seqs, "Prompts that run at once; each has a file open")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  add_model_flags(*command, flags->model);
  command->callback([flags] { export_hidden(*flags); });
}

}  // namespace folio
