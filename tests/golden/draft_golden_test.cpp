// The draft head against the oracle, for every backend that this processor runs: context rows from the oracle's taps,
// and a whole draft behind the oracle's context.
//
//   golden_draft_test --goldens build/goldens [--quick] [--report FILE.json]
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "engine/sequence.h"
#include "golden_main.h"
#include "op_runner.h"

namespace folio::golden {
namespace {

// Relative L2 that a tensor of a draft may be off by. The reference sums as the oracle does. With another order of fp32
// sums a draft either meets a flip or does not; behind one in the first stage, which of these cases heads-1 has on
// avx512bf16, the branches of the last stage lie .07 to .30 apart (docs/fidelity.md, "Drafts").
constexpr double kReferenceNoise = 0.01;
constexpr double kOrderNoise = 0.10;

class Tensors final : public TraceSink {
 public:
  void put(const std::string& key, DType dtype, const Shape& shape, const void* data) override {
    const auto* bytes = static_cast<const std::byte*>(data);
    tensors_[key].assign(bytes, bytes + shape.elements() * dtype_size(dtype));
  }
  template <typename T>
  std::span<const T> get(const std::string& key) const {
    const std::vector<std::byte>& bytes = tensors_.at(key);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  std::map<std::string, std::vector<std::byte>> tensors_;
};

double value(bf16 x) { return static_cast<double>(to_float(x)); }
double value(float x) { return static_cast<double>(x); }

template <typename T>
double relative_l2(std::span<const T> got, std::span<const T> want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(value(got[i]) - value(want[i]), 2);
    norm += std::pow(value(want[i]), 2);
  }
  return std::sqrt(difference / norm);
}

template <typename T>
bool same(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class DraftAgainstOracle : public testing::Test {
 public:
  DraftAgainstOracle(GoldenCase golden_case, std::string backend, Report& report)
      : case_(std::move(golden_case)), backend_(std::move(backend)), report_(report) {}

  void TestBody() override {
    golden_.emplace(case_);
    files_.emplace(ModelFiles::open(case_.checkpoint_dir()));
    width_ = static_cast<int32_t>(golden_->shape("draft.tokens")[1]);
    tokens_ = golden_->get<int32_t>("tokens");
    ops_ = make_backend(backend_);
    topology_ = make_topology(config());
    weights_ = load_weights(*ops_, files_->checkpoint, topology_, true);
    ops_->reserve(limits());
    for (const bool packed : {true, false}) {
      if (backend_ == "ref" && !packed) continue;  // slow, and the same but for the bytes of a row
      ModelRunner runner(*files_, options(packed), make_backend(backend_));
      context(runner);
      draft(runner);
      draft_behind_short_context(runner);
    }
    recorder_.check(backend_ == "ref");
    report_.add(case_.name, backend_, recorder_);
  }

 private:
  const Config& config() const { return files_->checkpoint.config(); }
  int64_t rows() const { return std::ssize(tokens_); }

  RunnerOptions options(bool packed) const {
    RunnerOptions options;
    options.cache_format.packed = packed;
    options.block_size = 32;
    options.max_model_len = 512;
    options.max_rows = 512;
    options.num_speculative_tokens = width_;
    options.trace = true;
    return options;
  }
  OpsLimits limits() const {
    return {.max_rows = rows(),
            .max_linear_in = std::max(std::ssize(config().dspark_target_layer_ids) * config().hidden_size,
                                      config().hidden_size + config().dspark_markov_rank),
            .hidden = config().hidden_size,
            .expert_inner = config().moe_intermediate_size,
            .max_experts = static_cast<int32_t>(config().n_routed_experts),
            .max_topk_experts = static_cast<int32_t>(config().num_experts_per_tok),
            .heads = static_cast<int32_t>(config().num_attention_heads),
            .head_dim = static_cast<int32_t>(config().head_dim),
            .vocab = config().vocab_size,
            .max_drafting = 1,
            .markov_rank = config().dspark_markov_rank};
  }

  // The taps side by side, and what the model makes of them, op by op.
  template <typename Source>
  std::vector<bf16> main_x(const Source& source) {
    const auto hidden = static_cast<size_t>(config().hidden_size);
    std::vector<bf16> taps, out(static_cast<size_t>(rows()) * hidden);
    for (size_t row = 0; row < static_cast<size_t>(rows()); ++row) {
      for (const int layer : config().dspark_target_layer_ids) {
        const auto tap = source.template get<bf16>(concat("tap.", layer)).subspan(row * hidden, hidden);
        taps.insert(taps.end(), tap.begin(), tap.end());
      }
    }
    ops_->quantized_linear(
        {.weight = weights_.draft.main_proj.get(), .x = taps.data(), .rows = rows(), .out = out.data()});
    norm(out, weights_.draft.main_norm.get());
    return out;
  }
  void norm(std::vector<bf16>& x, const Weight* weight) {
    ops_->rms_norm({.x = x.data(),
                    .weight = weight,
                    .eps = static_cast<float>(config().rms_norm_eps),
                    .rows = std::ssize(x) / weight->in(),
                    .cols = weight->in(),
                    .out = x.data()});
  }

  // The case's prompt through the backbone: the context rows that a step leaves are those of its own taps, and those of
  // the oracle's taps are the oracle's.
  void context(ModelRunner& runner) {
    Sequence sequence(runner);
    runner.builder().clear();
    sequence.begin_span(rows());
    for (int64_t p = 0; p < rows(); ++p) {
      const bool image = case_.image && p >= case_.image->first && p < case_.image->second;
      runner.builder().add_row({.value = tokens_[static_cast<size_t>(p)]}, image);
    }
    runner.builder().add_head_row();
    Tensors own;
    runner.run(&own);
    EXPECT_TRUE(same<bf16>(main_x(own), own.get<bf16>("mtp.main_x"))) << "taps are in another order or place";
    const std::vector<bf16> from_oracle = main_x(*golden_);
    EXPECT_LE(relative_l2<bf16>(from_oracle, golden_->get<bf16>("mtp.main_x")),
              backend_ == "ref" ? kReferenceNoise : kOrderNoise);
    for (int stage = 0; stage < config().num_nextn_predict_layers; ++stage) {
      context_of_stage(runner, sequence, own, stage);
    }
  }

  void context_of_stage(ModelRunner& runner, const Sequence& sequence, const Tensors& own, int stage) {
    const std::string key = concat("mtp.", stage, ".context"), attn = concat("mtp.", stage, ".attn.");
    const AttentionWeights& weights = weights_.draft.stages[static_cast<size_t>(stage)].attention;
    std::vector<bf16> wkv(static_cast<size_t>(rows() * config().head_dim));
    ops_->quantized_linear(
        {.weight = weights.wkv.get(), .x = golden_->get<bf16>("mtp.main_x").data(), .rows = rows(), .out = wkv.data()});
    recorder_.bf16_rows("mtp wkv", stage, wkv, golden_->get<bf16>(attn + "wkv"), config().head_dim);
    const auto want_wkv = golden_->get<bf16>(attn + "wkv");
    std::vector<bf16> normed(want_wkv.begin(), want_wkv.end());
    norm(normed, weights.kv_norm.get());
    recorder_.bf16_rows("mtp kv_norm", stage, normed, golden_->get<bf16>(attn + "kv_norm"), config().head_dim);

    // The ring holds the rows of the last positions.
    const CacheView cache(runner.geometry(), runner.pages(), runner.states());
    const RingRows& ring = cache.window[static_cast<size_t>(config().num_hidden_layers + stage)];
    const auto dim = static_cast<size_t>(config().head_dim);
    const auto encoded = window_rows(ring, own.get<uint8_t>(key + ".codes"), own.get<uint8_t>(key + ".scales"));
    EXPECT_EQ(encoded.size(), static_cast<size_t>(rows() * ring.row_stride));
    EXPECT_EQ(own.get<uint8_t>(key + ".codes").size(), static_cast<size_t>(rows()) * dim);
    for (int64_t p = std::max<int64_t>(0, rows() - ring.ring_rows); p < rows(); ++p) {
      EXPECT_EQ(std::memcmp(ring.at(sequence.slot(), p).codes, encoded.data() + p * ring.row_stride,
                            static_cast<size_t>(ring.row_stride)),
                0)
          << key << " of position " << p;
    }
  }

  // A slot as the oracle left it after the prompt: its context rows from `first` on, its anchor.
  void install(ModelRunner& runner, const Sequence& sequence, int64_t first) {
    std::memset(runner.states().data(), 0xff, static_cast<size_t>(runner.states().bytes()));
    const CacheView cache(runner.geometry(), runner.pages(), runner.states());
    for (int stage = 0; stage < config().num_nextn_predict_layers; ++stage) {
      const std::string key = concat("mtp.", stage, ".context");
      const RingRows& ring = cache.window[static_cast<size_t>(config().num_hidden_layers + stage)];
      const auto encoded =
          window_rows(ring, golden_->get<uint8_t>(key + ".codes"), golden_->get<uint8_t>(key + ".scales"));
      for (int64_t p = std::max(first, rows() - config().sliding_window); p < rows(); ++p) {
        std::memcpy(ring.at(sequence.slot(), p).codes, encoded.data() + p * ring.row_stride,
                    static_cast<size_t>(ring.row_stride));
      }
    }
    auto& cursor = *reinterpret_cast<SlotCursor*>(cache.cursors + sequence.slot() * cache.cursor_stride);
    cursor = {};
    cursor.position = golden_->get<int32_t>("draft.position")[0] + 1;
    cursor.last_token = golden_->get<int32_t>("draft.anchor")[0];
  }

  DraftOutputs run(ModelRunner& runner, const Sequence& sequence, int64_t first, Tensors* trace) {
    install(runner, sequence, first);
    runner.builder().clear();
    runner.builder().add_request({.slot = sequence.slot(), .window_floor = static_cast<int32_t>(first)}, {});
    runner.builder().add_draft();
    return runner.draft(runner.builder().step(), trace);
  }

  void draft(ModelRunner& runner) {
    const Sequence sequence(runner);
    Tensors own;
    const DraftOutputs outputs = run(runner, sequence, 0, &own);
    const double noise = backend_ == "ref" ? kReferenceNoise : kOrderNoise;
    for (int stage = 0; stage < config().num_nextn_predict_layers; ++stage) {
      const std::string key = concat("mtp.", stage, ".");
      for (const char* name : {"in_streams", "attn.in", "attn.out", "mid_streams", "ffn.in", "ffn.out", "streams"}) {
        EXPECT_LE(relative_l2(own.get<bf16>("draft." + key + name), golden_->get<bf16>("draft0." + key + name)), noise)
            << key << name;
      }
      recorder_.exact("mtp route ids", stage, own.get<int32_t>("draft." + key + "router.ids"),
                      golden_->get<int32_t>("draft0." + key + "router.ids"));
    }
    const auto count = static_cast<size_t>(width_), vocab = static_cast<size_t>(config().vocab_size);
    EXPECT_LE(relative_l2(own.get<bf16>("draft.hidden"), golden_->get<bf16>("draft.hidden").first(count * hidden())),
              noise);
    EXPECT_LE(
        relative_l2(std::span(outputs.logits, count * vocab), golden_->get<float>("draft.logits").first(count * vocab)),
        noise);
    EXPECT_LE(relative_l2(std::span(outputs.confidences, count), golden_->get<float>("draft.confidence").first(count)),
              2 * noise);
    recorder_.exact<int32_t>("draft tokens", -1, std::span(outputs.tokens, count),
                             golden_->get<int32_t>("draft.tokens").first(count));
    heads();
  }
  size_t hidden() const { return static_cast<size_t>(config().hidden_size); }

  // The heads alone, on the oracle's hidden rows.
  void heads() {
    const auto count = static_cast<size_t>(width_), vocab = static_cast<size_t>(config().vocab_size);
    const auto want_hidden = golden_->get<bf16>("draft.hidden").first(count * hidden());
    const DraftWeights& draft = weights_.draft;
    std::vector<bf16> x(want_hidden.begin(), want_hidden.end());
    norm(x, draft.norm.get());
    std::vector<float> logits(count * vocab), confidences(count);
    std::vector<int32_t> anchors(count, golden_->get<int32_t>("draft.anchor")[0]), tokens(count);
    ops_->linear({.weight = weights_.head.get(), .x = x.data(), .rows = width_, .out_f32 = logits.data()});
    ops_->draft_heads({.num_requests = 1,
                       .width = width_,
                       .anchors = anchors.data(),
                       .hidden = want_hidden.data(),
                       .embed = draft.markov_embed.get(),
                       .head = draft.markov_head.get(),
                       .confidence = draft.confidence.get(),
                       .logits = logits.data(),
                       .tokens = tokens.data(),
                       .confidences = confidences.data()});
    recorder_.f32_rows("draft logits (fp32)", -1, logits, golden_->get<float>("draft.logits").first(count * vocab),
                       config().vocab_size);
    recorder_.f32_rows("confidence (fp32)", -1, confidences, golden_->get<float>("draft.confidence").first(count), 1);
    recorder_.exact<int32_t>("draft heads: tokens", -1, tokens, golden_->get<int32_t>("draft.tokens").first(count));
  }

  // Context rows before the floor are not read: with NaN patterns there the result is finite, and another.
  void draft_behind_short_context(ModelRunner& runner) {
    const Sequence sequence(runner);
    const DraftOutputs outputs = run(runner, sequence, rows() - 3, nullptr);
    for (int32_t i = 0; i < width_; ++i) EXPECT_TRUE(std::isfinite(outputs.confidences[i]));
    EXPECT_GT(std::fabs(outputs.confidences[0] - golden_->get<float>("draft.confidence")[0]), 0);
  }

  GoldenCase case_;
  std::string backend_;
  Report& report_;
  std::optional<GoldenFile> golden_;
  std::optional<ModelFiles> files_;
  int32_t width_ = 0;
  std::span<const int32_t> tokens_;
  std::unique_ptr<Ops> ops_;
  Topology topology_;
  ModelWeights weights_;
  Recorder recorder_;
};

}  // namespace
}  // namespace folio::golden

int main(int argc, char** argv) {
  using namespace folio::golden;
  return golden_main(argc, argv, "DraftAgainstOracle",
                     [](const GoldenCase& golden_case, const std::string& backend, Report& report) {
                       return new DraftAgainstOracle(golden_case, backend, report);
                     });
}
