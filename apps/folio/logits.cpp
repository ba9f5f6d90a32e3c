// folio logits: teacher-forced logits and intermediates, to hold Folio against another implementation.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include "commands.h"
#include "engine/sequence.h"
#include "interrupt.h"
#include "model_flags.h"
#include "tokenizer/token_ids.h"

namespace folio {
namespace {

struct LogitsFlags {
  ModelFlags model;
  std::string tokens_file;
  std::string out;
  std::vector<int32_t> chunks = {512};
  std::string image;
  int64_t decoder_tail = 0;
  std::string resume;
  bool trace = false;
};

// Which positions run (spec runtime 4): those before `hit` have run exactly and left their entries; then the request
// starts again at `start`, and the decoder layers run from `decoder_start` on. Without replay all three are 0.
struct Plan {
  int64_t hit = 0;
  int64_t start = 0;
  int64_t decoder_start = 0;
  int64_t first_logits() const { return std::max(start, decoder_start); }
};

// Collects what a trace puts, rows of all chunks under one key.
class TraceFile final : public TraceSink {
 public:
  void put(const std::string& key, DType dtype, const Shape& shape, const void* data) override {
    Entry& entry = entries_[key];
    entry.dtype = dtype;
    const int64_t rows = entry.shape.rank() > 0 ? entry.shape[0] : 0;
    entry.shape = Shape{rows + shape[0]};
    for (int i = 1; i < shape.rank(); ++i) entry.shape.push_back(shape[i]);
    const auto* bytes = static_cast<const std::byte*>(data);
    entry.bytes.insert(entry.bytes.end(), bytes, bytes + shape.elements() * dtype_size(dtype));
  }
  void declare(std::vector<SafetensorsWriter::Tensor>& tensors) const {
    for (const auto& [key, entry] : entries_) tensors.push_back({key, entry.dtype, entry.shape});
  }
  void write(SafetensorsWriter& writer) const {
    for (const auto& [key, entry] : entries_) writer.write(key, std::span<const std::byte>(entry.bytes));
  }

 private:
  struct Entry {
    DType dtype = DType::kF32;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Entry> entries_;
};

// The half-open range of "A:B".
std::pair<int64_t, int64_t> parse_range(const std::string& text, int64_t length) {
  if (text.empty()) return {0, 0};
  long long first = 0, end = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%lld:%lld%c", &first, &end, &rest) != 2 || first < 0 || first >= end || end > length) {
    fail(ErrorCode::kInvalidArgument, "--image ", text, ": give positions A:B with 0 <= A < B <= ", length,
         ", the number of tokens");
  }
  return {first, end};
}

Plan make_plan(const LogitsFlags& flags, int64_t length) {
  Plan plan;
  if (!flags.resume.empty()) {
    long long hit = 0, start = 0;
    char rest = 0;
    if (std::sscanf(flags.resume.c_str(), "%lld:%lld%c", &hit, &start, &rest) != 2 || start < 0 || start > hit ||
        hit >= length || start % 2 != 0) {
      fail(ErrorCode::kInvalidArgument, "--resume ", flags.resume, ": give HIT:START with 0 <= START <= HIT < ", length,
           ", the number of tokens, and START even, as entries may stand for two tokens");
    }
    plan.hit = hit;
    plan.start = start;
  }
  if (flags.decoder_tail > 0) plan.decoder_start = std::max<int64_t>(0, length - flags.decoder_tail);
  return plan;
}

// Row r of a source's flat index_scores is scores[offsets[r] : offsets[r + 1]].
void put_index_offsets(const ModelRunner& runner, const Plan& plan, int64_t length, TraceFile& trace) {
  for (const int layer : runner.config().index_source_layer_ids) {
    const int64_t first = layer < runner.topology().first_decoder_layer ? plan.start : plan.first_logits();
    std::vector<int64_t> offsets = {0};
    for (int64_t p = first; p < length; ++p) offsets.push_back(offsets.back() + (p + 1) / runner.config().ratio(layer));
    trace.put(concat("layers.", layer, ".index_offsets"), DType::kI64, {std::ssize(offsets)}, offsets.data());
  }
}

// The tokens of the file, and what the flags say about their positions.
struct Input {
  std::vector<int32_t> tokens;
  std::pair<int64_t, int64_t> image;  // those from first to second - 1 are inside an image span
  Plan plan;

  int64_t length() const { return std::ssize(tokens); }
  bool in_image(int64_t p) const { return p >= image.first && p < image.second; }
};

Input read_input(const LogitsFlags& flags) {
  constexpr size_t kMaxTokensFile = size_t{1} << 28;
  Input input{.tokens = parse_token_ids(read_file(flags.tokens_file, kMaxTokensFile), flags.tokens_file),
              .image = {},
              .plan = {}};
  if (input.tokens.empty()) fail(ErrorCode::kInvalidArgument, flags.tokens_file, " holds no token ids");
  input.image = parse_range(flags.image, input.length());
  input.plan = make_plan(flags, input.length());
  return input;
}

RunnerOptions options_for(const LogitsFlags& flags, int64_t length) {
  RunnerOptions options = runner_options(flags.model);
  options.max_rows = static_cast<int32_t>(std::min<int64_t>(length, std::ranges::max(flags.chunks)));
  options.max_head_rows = options.max_rows;
  options.max_model_len = length;
  options.trace = flags.trace;
  return options;
}

// Runs the tokens and writes the file.
class ForcedRun {
 public:
  ForcedRun(const LogitsFlags& flags, const Input& input, const ModelFiles& files)
      : flags_(flags),
        input_(input),
        files_(files),
        runner_(files, options_for(flags, input.length())),
        sequence_(runner_),
        metadata_{
            {"model", files.checkpoint.dir()}, {"ops", runner_.ops_name()}, {"cache", runner_.geometry().identity()}},
        tensors_{{"logits", DType::kF32, {input.length() - input.plan.first_logits(), vocab()}},
                 {"tokens", DType::kI32, {input.length()}}},
        progress_(isatty(STDERR_FILENO) != 0) {
    // With a trace the tensors are known at the end; that the file can be written is known now.
    writer_ = std::make_unique<SafetensorsWriter>(flags.out, tensors_, metadata_);
    if (flags.trace) writer_.reset();
    sequence_.skip_to(input.length());  // its pages, for both passes
  }

  void run() {
    const Plan& plan = input_.plan;
    // What the request that leaves the prefix runs past the last entries is nobody's business.
    if (plan.hit > 0) run(0, plan.hit, {.decoder_start = static_cast<int32_t>(input_.length())}, false);
    run(plan.start, input_.length(),
        {.window_floor = static_cast<int32_t>(plan.start),
         .decoder_start = static_cast<int32_t>(plan.decoder_start),
         .write_from = static_cast<int32_t>(plan.hit)},
        true);
    if (progress_) std::fputc('\n', stderr);
  }

  // The bytes of the tensors.
  int64_t write() {
    if (flags_.trace) {
      put_inputs();
      trace_.declare(tensors_);
      writer_ = std::make_unique<SafetensorsWriter>(flags_.out, tensors_, metadata_);
      writer_->write("logits", std::span<const float>(rows_));
      trace_.write(*writer_);
    }
    writer_->write("tokens", std::span<const int32_t>(input_.tokens));
    writer_->finish();
    return writer_->payload_bytes();
  }

 private:
  int64_t vocab() const { return runner_.config().vocab_size; }

  // Positions begin .. end-1 in chunks, those from decoder_start on in all layers.
  void run(int64_t begin, int64_t end, RequestSpan span, bool logits_wanted) {
    for (int64_t lag = 0; lag < std::min<int64_t>(kMaxEngramHistory, begin); ++lag) {
      const int64_t p = begin - 1 - lag;
      span.history[lag] = input_.in_image(p) ? -1 : input_.tokens[static_cast<size_t>(p)];
    }
    span.slot = sequence_.slot();
    span.restart = 1;
    span.start = static_cast<int32_t>(begin);
    for (size_t chunk = 0; begin < end;) {
      check_interrupt();
      const int64_t count = std::min<int64_t>(flags_.chunks[chunk], end - begin);
      if (chunk + 1 < flags_.chunks.size()) ++chunk;
      run_chunk(begin, count, span, logits_wanted);
      span.restart = 0;
      begin += count;
      if (!progress_) continue;
      std::fprintf(stderr, "\r%lld of %lld tokens", static_cast<long long>(begin),
                   static_cast<long long>(input_.length()));
    }
  }

  void run_chunk(int64_t begin, int64_t count, const RequestSpan& span, bool logits_wanted) {
    StepBuilder& builder = runner_.builder();
    builder.clear();
    builder.add_request(span, sequence_.pages());
    int64_t heads = 0;
    for (int64_t p = begin; p < begin + count; ++p) {
      const bool decoder = p >= span.decoder_start;
      builder.add_row({.value = input_.tokens[static_cast<size_t>(p)]}, input_.in_image(p), decoder);
      if (!decoder || !logits_wanted) continue;
      builder.add_head_row();
      ++heads;
    }
    const float* out = runner_.run(flags_.trace && logits_wanted ? &trace_ : nullptr).logits;
    if (writer_ && heads > 0) {
      writer_->write("logits", std::span(out, static_cast<size_t>(heads * vocab())),
                     (begin + count - heads - input_.plan.first_logits()) * vocab() * dtype_size(DType::kF32));
    } else if (heads > 0) {
      rows_.insert(rows_.end(), out, out + heads * vocab());
    }
  }

  // What a reader of the trace has to know beside the intermediates.
  void put_inputs() {
    put_index_offsets(runner_, input_.plan, input_.length(), trace_);
    if (!files_.compressed.empty()) trace_.put("token_map", DType::kI32, {vocab()}, files_.compressed.data());
    if (input_.image.second > input_.image.first) {
      std::vector<uint8_t> mask(input_.tokens.size(), 0);
      std::fill(mask.begin() + input_.image.first, mask.begin() + input_.image.second, uint8_t{1});
      trace_.put("image_mask", DType::kU8, {input_.length()}, mask.data());
    }
  }

  const LogitsFlags& flags_;
  const Input& input_;
  const ModelFiles& files_;
  ModelRunner runner_;
  Sequence sequence_;
  std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsWriter::Tensor> tensors_;
  bool progress_;
  std::unique_ptr<SafetensorsWriter> writer_;  // without a trace logits are written as they come
  TraceFile trace_;
  std::vector<float> rows_;  // logits of a trace
};

void logits(const LogitsFlags& flags) {
  const Input input = read_input(flags);
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  files.tokenizer.check_ids(input.tokens);
  if (input.length() > files.checkpoint.config().max_position_embeddings) {
    fail(ErrorCode::kInvalidArgument, flags.tokens_file, " holds ", input.length(), " tokens and the model's context ",
         files.checkpoint.config().max_position_embeddings, ": leave out some");
  }
  ForcedRun run(flags, input, files);
  note_default_model(flags.model);
  catch_interrupts();
  run.run();
  const int64_t bytes = run.write();
  std::printf("%s: logits of %lld tokens, %lld bytes\n", flags.out.c_str(), static_cast<long long>(input.length()),
              static_cast<long long>(bytes));
}

}  // namespace

void add_logits(CLI::App& app) {
  CLI::App* command = app.add_subcommand("logits", "Write teacher-forced logits, and intermediates with --trace");
  command->footer(
      "Writes a safetensors file: `logits` F32 [tokens, vocab], `tokens` I32, and with --trace the intermediates of "
      "every layer under the keys of tools/oracle/README.md. Chunk sizes change no bit of the result. --decoder-tail "
      "and --resume run the two bounded replays, as tools/oracle/golden.py does under the same names; `logits` then "
      "begins "
      "at the first position that all layers run.");
  const auto flags = std::make_shared<LogitsFlags>();
  command->add_option("--tokens-file", flags->tokens_file, "Token ids, separated by white space or commas")
      ->type_name("FILE")
      ->required();
  command->add_option("--out", flags->out, "Where to write")->type_name("FILE.safetensors")->required();
  command->add_option("--chunk", flags->chunks, "Rows of each forward; the last size repeats")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--image", flags->image, "Positions A..B-1 are inside an image span")->type_name("A:B");
  command
      ->add_option("--decoder-tail", flags->decoder_tail,
                   "Decoder bounded replay: layers past the last KV owner run the last N positions only; 0: all")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30));
  command
      ->add_option(
          "--resume", flags->resume,
          "Encoder bounded replay: the first HIT positions are in the cache, and the run starts again at START")
      ->type_name("HIT:START");
  command->add_flag("--trace", flags->trace, "Write intermediates too");
  add_model_flags(*command, flags->model, true);
  command->callback([flags] { logits(*flags); });
}

}  // namespace folio
