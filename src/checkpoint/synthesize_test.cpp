#include "checkpoint/synthesize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_test_util.h"
#include "checkpoint/presets.h"
#include "checkpoint/schema.h"
#include "numerics/bf16.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"

namespace folio {
namespace {

using testing::expect_error;
using testing::nano_options;
using testing::TemporaryDirectory;

std::map<std::string, std::string> contents(const TemporaryDirectory& directory) {
  std::map<std::string, std::string> files;
  for (const auto& file : testing::fs::directory_iterator(directory.path())) {
    files[file.path().filename().string()] = testing::read_bytes(file.path());
  }
  return files;
}

// Dequantised values of a tensor.
std::vector<float> values(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView view = checkpoint.tensor(name);
  const int64_t n = view.shape.elements();
  std::vector<float> x;
  if (view.dtype == DType::kF32) x.assign(view.as<float>(), view.as<float>() + n);
  if (view.dtype == DType::kBF16) std::transform(view.as<bf16>(), view.as<bf16>() + n, std::back_inserter(x), to_float);
  if (view.dtype == DType::kF32 || view.dtype == DType::kBF16) return x;
  const bool packed = view.dtype == DType::kI8;
  const TensorView scale = checkpoint.tensor(name.substr(0, name.size() - 6) + "scale");
  const int64_t columns = view.shape[1] * (packed ? 2 : 1);
  const bool tiled = scale.shape[0] != view.shape[0];
  for (int64_t i = 0; i < view.shape[0] * columns; ++i) {
    const int64_t row = i / columns;
    const uint8_t exponent = scale.as<uint8_t>()[(tiled ? row / 32 : row) * scale.shape[1] + i % columns / 32];
    const float code = packed ? e2m1_decode(fp4_code(view.as<uint8_t>(), i)) : e4m3_decode(view.as<uint8_t>()[i]);
    x.push_back(code * e8m0_decode(exponent));
  }
  return x;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments(const std::vector<float>& x) {
  double sum = 0;
  double squares = 0;
  for (const float v : x) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const double mean = sum / static_cast<double>(x.size());
  return {mean, std::sqrt(squares / static_cast<double>(x.size()) - mean * mean)};
}

TEST(Synthesize, TheBytesDoNotDependOnThreads) {
  const TemporaryDirectory one;
  const TemporaryDirectory three;
  const TemporaryDirectory other;
  SynthesizeOptions options = nano_options(one.path().string());
  options.threads = 1;
  const SynthesizeResult result = synthesize_checkpoint(options);
  EXPECT_EQ(result.tensors, 1290);
  EXPECT_EQ(result.bytes, 5419764);
  EXPECT_EQ(result.shards, 15);
  options.out = three.path().string();
  options.threads = 3;
  synthesize_checkpoint(options);
  EXPECT_EQ(contents(one), contents(three));
  options.out = other.path().string();
  options.seed = 2;
  synthesize_checkpoint(options);
  EXPECT_NE(contents(one), contents(other));
}

TEST(Synthesize, SmallPresetsOpen) {
  for (const char* preset : {"nano", "slots", "heads", "mini"}) {
    const TemporaryDirectory directory;
    SynthesizeOptions options = nano_options(directory.path().string());
    options.preset = preset;
    options.vision = true;
    int64_t last = -1;
    options.progress = [&](int64_t done, int64_t total) {
      EXPECT_LE(last, done);
      EXPECT_LE(done, total);
      last = done;
    };
    const SynthesizeResult result = synthesize_checkpoint(options);
    EXPECT_EQ(last, result.bytes);
    const Checkpoint checkpoint = Checkpoint::open(directory.path().string());
    EXPECT_EQ(checkpoint.tensor_count(), result.tensors);
    EXPECT_TRUE(checkpoint.config().vision.has_value());
  }
}

// Values have the spread that the forward pass is balanced for.
TEST(Synthesize, Distributions) {
  const Checkpoint checkpoint = Checkpoint::open(testing::nano_checkpoint().string());
  const auto expect = [&](const std::string& name, double mean, double deviation) {
    const Moments m = moments(values(checkpoint, name));
    EXPECT_NEAR(m.mean, mean, 0.15 * deviation) << name;
    EXPECT_NEAR(m.deviation, deviation, 0.15 * deviation) << name;
  };
  const auto fan = [](double n) { return 1 / std::sqrt(n); };
  expect("embed.weight", 0, 0.7);
  expect("layers.0.attn.wq_a.weight", 0, 1.3 * fan(128));
  expect("layers.0.attn.wo_b.weight", 0, 0.3 * fan(128));
  expect("layers.0.ffn.experts.3.w1.weight", 0, 1.6 * fan(128));
  expect("layers.0.ffn.experts.3.w2.weight", 0, 0.11 * fan(64));
  expect("layers.0.ffn.shared_experts.w3.weight", 0, 1.6 * fan(128));
  expect("layers.1.attn.indexer.wq_b.weight", 0, fan(64));
  expect("layers.1.attn.compressor.wgate.weight", 0, 2.5 * fan(128));
  expect("layers.1.engram.embed.weight", 0, 1);
  expect("layers.1.engram.wkv.weight", 0, 0.35 * fan(192));
  expect("layers.0.attn_norm.weight", 0.8, 0.8 * 0.15);
  expect("layers.0.hc_attn_fn", 0, fan(512));
  expect("mtp.2.markov_head.embed.weight", 0, 0.5);
}

// Greedy text follows a map: the head's row of next(v) points at the embedding of v, for the draft's Markov head too.
TEST(Synthesize, HeadsShareASuccessorMap) {
  const Checkpoint checkpoint = Checkpoint::open(testing::nano_checkpoint().string());
  const auto best = [&](const std::string& from, const std::string& to) {
    const std::vector<float> a = values(checkpoint, from);
    const std::vector<float> b = values(checkpoint, to);
    const auto columns = static_cast<size_t>(checkpoint.tensor(from).shape[1]);
    std::vector<size_t> next;
    for (size_t v = 0; v < 512; ++v) {
      size_t arg = 0;
      double largest = -1e30;
      for (size_t w = 0; w < 512; ++w) {
        double dot = 0;
        for (size_t i = 0; i < columns; ++i) dot += static_cast<double>(a[v * columns + i]) * b[w * columns + i];
        if (dot > largest) {
          largest = dot;
          arg = w;
        }
      }
      next.push_back(arg);
    }
    return next;
  };
  const auto head = best("embed.weight", "head.weight");
  const auto markov = best("mtp.2.markov_head.embed.weight", "mtp.2.markov_head.head.weight");
  int same = 0;
  for (size_t v = 0; v < 512; ++v) same += head[v] == markov[v];
  EXPECT_GT(same, 450);
}

TEST(Synthesize, RefusesWhatItCannotDo) {
  SynthesizeOptions options = nano_options("/proc/nowhere/x");
  expect_error(ErrorCode::kInvalidArgument, {"/proc/nowhere/x", "cannot make the directory"},
               [&] { synthesize_checkpoint(options); });
  const TemporaryDirectory directory;
  options.out = directory.path().string();
  options.preset = "giant";
  expect_error(ErrorCode::kInvalidArgument, {"'giant'", "nano"}, [&] { synthesize_checkpoint(options); });
  EXPECT_TRUE(testing::fs::is_empty(directory.path()));
  options.preset = "nano";
  options.compressed_vocab_size = [](const std::string&) { return 1000; };
  expect_error(ErrorCode::kInvalidConfig, {"engram_compressed_vocab_size (1000)"},
               [&] { synthesize_checkpoint(options); });
}

TEST(Synthesize, ProgressMayEndTheWork) {
  const TemporaryDirectory directory;
  SynthesizeOptions options = nano_options(directory.path().string());
  options.progress = [](int64_t, int64_t) { fail(ErrorCode::kUnsupported, "enough"); };
  expect_error(ErrorCode::kUnsupported, {"enough"}, [&] { synthesize_checkpoint(options); });
  EXPECT_EQ(contents(directory).size(), 1u);  // tokenizer.json
}

TEST(Synthesize, ForceReplacesACheckpointAndLeavesOtherFiles) {
  const TemporaryDirectory directory;
  SynthesizeOptions options = nano_options(directory.path().string());
  std::ofstream(directory / "notes.txt") << "mine";
  expect_error(ErrorCode::kInvalidArgument, {"is not empty", "--force"}, [&] { synthesize_checkpoint(options); });
  options.force = true;
  options.vision = true;  // another number of shards
  synthesize_checkpoint(options);
  options.vision = false;
  synthesize_checkpoint(options);
  EXPECT_EQ(contents(directory).size(), 15u + 3u + 1u);
  EXPECT_EQ(testing::read_bytes(directory / "notes.txt"), "mine");
  EXPECT_NO_THROW(Checkpoint::open(directory.path().string()));
}

TEST(TinyTokenizer, HasExactlyTheIdsThatItShould) {
  const auto json = testing::Json::parse(tiny_tokenizer_json(512, 510, 511));
  const auto& vocab = json["model"]["vocab"];
  EXPECT_EQ(vocab.size() + json["added_tokens"].size(), 512u);
  int64_t last = -1;
  for (const auto& [piece, id] : vocab.items()) {
    EXPECT_GT(id.get<int64_t>(), last) << piece;
    last = id.get<int64_t>();
  }
  EXPECT_EQ(vocab["!"], 3 + 33);
  EXPECT_EQ(json["added_tokens"][3]["id"], 510);
  EXPECT_EQ(json["model"]["merges"].size(), 512u - 5 - 256);
}

}  // namespace
}  // namespace folio
