#include "checkpoint/schema.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "checkpoint/presets.h"

namespace folio {
namespace {

std::vector<TensorSpec> published_schema() { return make_schema(parse_config(published_config_json(), "config.json")); }

TEST(Schema, PublishedTotals) {
  int64_t bytes = 0;
  std::set<std::string> names;
  std::map<Part, int64_t> parts;
  const std::vector<TensorSpec> schema = published_schema();
  for (const TensorSpec& spec : schema) {
    bytes += spec.bytes();
    parts[spec.part] += spec.bytes();
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  }
  EXPECT_EQ(schema.size(), 96085u);
  EXPECT_EQ(bytes, 510286023000);
  EXPECT_EQ(parts[Part::kAttention] / 40, 126743040);
  EXPECT_EQ(parts[Part::kRoutedExperts], INT64_C(40) * 384 * 18800640);
  EXPECT_EQ(parts[Part::kEngramTables], INT64_C(264) * (384006168 + 384016682));
}

// File sizes of spec/model.md 3.7, which are payload and header: a header of this model takes some 100 bytes per
// tensor.
TEST(Schema, PublishedShards) {
  std::map<int, int64_t> bytes;
  std::map<int, int64_t> tensors;
  for (const TensorSpec& spec : published_schema()) {
    bytes[spec.shard] += spec.bytes();
    ++tensors[spec.shard];
  }
  const Config config = parse_config(published_config_json(), "config.json");
  EXPECT_EQ(shard_count(config), 48);
  EXPECT_EQ(bytes.size(), 48u);
  const std::map<int, int64_t> files = {{1, 970533624},   {2, 1323858272},  {43, 1323837624},   {44, 2652728736},
                                        {45, 2573998176}, {46, 2706402896}, {47, 101535150936}, {48, 101537926640}};
  for (const auto& [number, size] : files) {
    const int64_t header = size - bytes[number - 1];
    EXPECT_GT(header, 60 * tensors[number - 1]) << number;
    EXPECT_LT(header, 200 * tensors[number - 1] + 200) << number;
  }
  EXPECT_EQ(shard_file_name(0, 48), "model-00001-of-00048.safetensors");
  EXPECT_EQ(shard_file_name(47, 48), "model-00048-of-00048.safetensors");
}

TEST(Schema, PublishedTensors) {
  std::map<std::string, TensorSpec> specs;
  for (const TensorSpec& spec : published_schema()) specs[spec.name] = spec;
  const auto expect = [&](const std::string& name, DType dtype, const Shape& shape, int shard, Part part) {
    ASSERT_TRUE(specs.contains(name)) << name;
    const TensorSpec& spec = specs[name];
    EXPECT_EQ(spec.dtype, dtype) << name;
    EXPECT_EQ(spec.shape, shape) << name << " " << spec.shape.to_string();
    EXPECT_EQ(spec.shard, shard - 1) << name;
    EXPECT_EQ(spec.part, part) << name;
  };
  using D = DType;
  expect("embed.weight", D::kBF16, {129280, 5120}, 2, Part::kEmbedding);
  expect("image_newline", D::kBF16, {5120}, 2, Part::kEmbedding);
  expect("head.weight", D::kBF16, {129280, 5120}, 43, Part::kHead);
  expect("layers.0.attn.wq_a.scale", D::kF8E8M0, {40, 160}, 3, Part::kAttention);
  expect("layers.39.attn.wq_b.weight", D::kF8E4M3, {32768, 1280}, 42, Part::kAttention);
  expect("layers.5.attn.wo_a.scale", D::kF8E8M0, {256, 128}, 8, Part::kAttention);
  expect("layers.5.attn.attn_sink", D::kF32, {64}, 8, Part::kAttention);
  expect("layers.5.hc_ffn_fn", D::kF32, {24, 20480}, 8, Part::kHyperConnections);
  expect("layers.5.ffn.gate.bias_vl", D::kF32, {384}, 8, Part::kRouter);
  expect("layers.5.ffn.shared_experts.w2.scale", D::kF8E8M0, {160, 72}, 8, Part::kSharedExperts);
  expect("layers.5.ffn.experts.383.w2.weight", D::kI8, {5120, 1152}, 8, Part::kRoutedExperts);
  expect("layers.5.ffn.experts.383.w1.scale", D::kF8E8M0, {2304, 160}, 8, Part::kRoutedExperts);
  expect("layers.14.attn.compressor.wgate.weight", D::kBF16, {512, 5120}, 17, Part::kCompressor);
  expect("layers.20.attn.compressor.wkv.weight", D::kBF16, {512, 5120}, 23, Part::kCompressor);
  expect("layers.20.attn.indexer.k_norm.weight", D::kBF16, {128}, 23, Part::kCompressor);
  expect("layers.24.attn.indexer.wq_b.scale", D::kF8E8M0, {128, 40}, 27, Part::kIndexer);
  expect("layers.36.attn.indexer.weights_proj.weight", D::kBF16, {32, 5120}, 39, Part::kIndexer);
  expect("layers.1.engram.embed.scale", D::kF8E8M0, {384006168, 8}, 47, Part::kEngramTables);
  expect("layers.14.engram.wkv.scale", D::kF8E8M0, {800, 192}, 48, Part::kEngramProjections);
  expect("layers.14.engram.q_weight", D::kBF16, {4, 5120}, 48, Part::kEngramProjections);
  expect("mtp.0.main_proj.scale", D::kF8E8M0, {160, 480}, 44, Part::kDraft);
  expect("mtp.1.ffn.gate.weight", D::kBF16, {128, 5120}, 45, Part::kDraft);
  expect("mtp.2.markov_head.head.weight", D::kBF16, {129280, 256}, 46, Part::kDraft);
  expect("mtp.2.confidence_head.proj.weight", D::kBF16, {1, 5376}, 46, Part::kDraft);
  expect("vision.blocks.31.mlp.w1.weight", D::kBF16, {5632, 1024}, 1, Part::kVision);
  expect("aligner.w1.weight", D::kBF16, {5120, 9216}, 1, Part::kVision);
  for (const char* absent : {"layers.20.attn.compressor.wgate.weight", "layers.24.attn.indexer.wk.weight",
                             "mtp.0.norm.weight", "layers.2.engram.wkv.weight", "mtp.0.attn.compressor.wkv.weight"}) {
    EXPECT_FALSE(specs.contains(absent)) << absent;
  }
}

TEST(Schema, WithoutVisionItsTensorsAndShardAreGone) {
  const Config config = parse_config(preset_config_json("nano", false, 284), "nano");
  const std::vector<TensorSpec> schema = make_schema(config);
  EXPECT_EQ(schema.size(), 1290u);
  EXPECT_EQ(shard_count(config), 15);
  EXPECT_EQ(schema.front().name, "embed.weight");
  EXPECT_EQ(schema.front().shard, 0);
  for (const TensorSpec& spec : schema)
    EXPECT_FALSE(spec.name.starts_with("image_") || spec.part == Part::kVision) << spec.name;
}

TEST(Schema, EveryPartHasAName) {
  std::set<std::string_view> names;
  for (int i = 0; i < kPartCount; ++i) EXPECT_TRUE(names.insert(part_name(static_cast<Part>(i))).second);
  EXPECT_EQ(part_name(Part::kVision), "vision");
}

}  // namespace
}  // namespace folio
