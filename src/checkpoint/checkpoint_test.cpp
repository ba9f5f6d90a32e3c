#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_test_util.h"
#include "checkpoint/schema.h"

namespace folio {
namespace {

using testing::Copy;
using testing::expect_error;
using testing::Json;
using testing::TemporaryDirectory;

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kEmbed = "model-00001-of-00015.safetensors";  // embed.weight
constexpr const char* kLayer0 = "model-00002-of-00015.safetensors";
constexpr const char* kHead = "model-00010-of-00015.safetensors";    // head.weight, norm.weight
constexpr const char* kEngram = "model-00014-of-00015.safetensors";  // layers.1.engram.*

TEST(Checkpoint, MapsEveryTensorOfTheSchema) {
  const Checkpoint checkpoint = Checkpoint::open(testing::nano_checkpoint().string());
  EXPECT_EQ(checkpoint.tensor_count(), 1290);
  EXPECT_EQ(checkpoint.total_bytes(), 5419764);
  EXPECT_EQ(checkpoint.files().size(), 15u);
  EXPECT_EQ(checkpoint.dir(), testing::nano_checkpoint().string());
  for (const TensorSpec& spec : make_schema(checkpoint.config())) {
    const TensorView view = checkpoint.tensor(spec.name);
    EXPECT_EQ(view.dtype, spec.dtype);
    EXPECT_EQ(view.shape, spec.shape);
    EXPECT_NE(view.data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(dtype_size(spec.dtype)), 0u);
  }
  EXPECT_TRUE(checkpoint.has("head.weight"));
  EXPECT_FALSE(checkpoint.has("tail.weight"));
  expect_error(ErrorCode::kInvalidCheckpoint, {"no tensor \"tail.weight\""}, [&] { checkpoint.tensor("tail.weight"); });
}

TEST(Checkpoint, ViewsSurviveAMove) {
  Checkpoint first = Checkpoint::open(testing::nano_checkpoint().string());
  const std::byte* data = first.tensor("norm.weight").data;
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.tensor("norm.weight").data, data);
  EXPECT_TRUE(second.has("layers.1.engram.embed.weight"));
}

// All shards merged into model.safetensors, without an index.
TEST(Checkpoint, SingleFile) {
  const Checkpoint sharded = Checkpoint::open(testing::nano_checkpoint().string());
  const TemporaryDirectory directory;
  std::vector<SafetensorsWriter::Tensor> tensors;
  const std::vector<TensorSpec> schema = make_schema(sharded.config());
  for (const TensorSpec& spec : schema) tensors.push_back({spec.name, spec.dtype, spec.shape});
  SafetensorsWriter writer(directory / "model.safetensors", tensors);
  for (const TensorSpec& spec : schema) {
    writer.write(spec.name, {sharded.tensor(spec.name).data, static_cast<size_t>(spec.bytes())});
  }
  writer.finish();
  testing::write_bytes(directory / kConfig, testing::read_bytes(testing::nano_checkpoint() / kConfig));
  const Checkpoint single = Checkpoint::open(directory.path().string());
  EXPECT_EQ(single.files().size(), 1u);
  EXPECT_EQ(single.total_bytes(), sharded.total_bytes());
  for (const TensorSpec& spec : schema) {
    ASSERT_EQ(
        std::memcmp(single.tensor(spec.name).data, sharded.tensor(spec.name).data, static_cast<size_t>(spec.bytes())),
        0)
        << spec.name;
  }
}

struct Broken {
  const char* name;
  std::function<void(Copy&)> damage;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::kInvalidCheckpoint;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenCheckpoint : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenCheckpoint, IsRefusedWithItsReason) {
  Copy copy;
  GetParam().damage(copy);
  std::vector<std::string> says = GetParam().says;
  says.push_back(copy.path());
  expect_error(GetParam().code, says, [&] { Checkpoint::open(copy.path()); });
}

// Damage to the entry of one tensor in a shard's header.
std::function<void(Copy&)> entry(const char* file, const char* tensor, const std::function<void(Json&)>& edit) {
  return [=](Copy& copy) { copy.header(file, [&](Json& header) { edit(header[tensor]); }); };
}
std::function<void(Copy&)> dtype(const char* file, const char* tensor, const char* tag) {
  return entry(file, tensor, [=](Json& e) { e["dtype"] = tag; });
}
std::function<void(Copy&)> shape(const char* file, const char* tensor, const std::vector<int64_t>& sizes) {
  return entry(file, tensor, [=](Json& e) { e["shape"] = sizes; });
}
std::function<void(Copy&)> truncated(const char* file, size_t bytes_left) {
  return [=](Copy& copy) {
    copy.bytes(file, [&](std::string& content) { content.resize(std::min(bytes_left, content.size() - 1)); });
  };
}
// A config whose model has other tensors than the shards.
template <typename Value>
std::function<void(Copy&)> config(const char* key, const Value& value) {
  return [=](Copy& copy) { copy.config([&](Json& json) { json["text_config"][key] = value; }); };
}
void rename(Json& object, const std::string& from, const std::string& to) {
  object[to] = object[from];
  object.erase(from);
}

INSTANTIATE_TEST_SUITE_P(
    Files, BrokenCheckpoint,
    ::testing::Values(
        Broken{"no_config",
               [](Copy& c) { testing::fs::remove(c.file(kConfig)); },
               {"config.json", "No such file"},
               ErrorCode::kNotFound},
        Broken{"empty_config",
               [](Copy& c) { testing::write_bytes(c.file(kConfig), ""); },
               {"config.json", "not valid JSON"},
               ErrorCode::kInvalidConfig},
        Broken{"config_is_a_directory",
               [](Copy& c) {
                 testing::fs::remove(c.file(kConfig));
                 testing::fs::create_directory(c.file(kConfig));
               },
               {"config.json", "not a regular file"},
               ErrorCode::kNotFound},
        Broken{"config_too_large",
               [](Copy& c) { testing::write_bytes(c.file(kConfig), std::string(2 << 20, ' ')); },
               {"config.json", "more than the limit"},
               ErrorCode::kInvalidArgument},
        Broken{"no_index",
               [](Copy& c) { testing::fs::remove(c.file(kIndex)); },
               {"neither model.safetensors.index.json nor model.safetensors"},
               ErrorCode::kNotFound},
        Broken{"no_shard", [](Copy& c) { testing::fs::remove(c.file(kLayer0)); }, {kLayer0, "No such file"}},
        Broken{"two_shards_missing",
               [](Copy& c) {
                 testing::fs::remove(c.file(kLayer0));
                 testing::fs::remove(c.file(kHead));
               },
               {"2 problems", kLayer0, kHead}},
        Broken{"shard_is_a_directory",
               [](Copy& c) {
                 testing::fs::remove(c.file(kHead));
                 testing::fs::create_directory(c.file(kHead));
               },
               {kHead, "not a regular file"}},
        Broken{"empty_shard", truncated(kLayer0, 0), {kLayer0, "only 0 bytes"}},
        Broken{"shard_cut_in_length", truncated(kLayer0, 5), {kLayer0, "only 5 bytes"}},
        Broken{"shard_cut_in_header", truncated(kLayer0, 300), {kLayer0, "claims a header", "truncated?"}},
        Broken{"shard_cut_in_payload", truncated(kLayer0, 400000), {kLayer0, "tensor", "truncated?"}},
        Broken{"shard_cut_by_one", truncated(kHead, 1 << 30), {kHead, "truncated?"}},
        Broken{"shard_with_more",
               [](Copy& c) { c.bytes(kHead, [](std::string& s) { s += "extra"; }); },
               {kHead, "the last 5 bytes"}},
        Broken{"shard_is_text",
               [](Copy& c) {
                 testing::write_bytes(c.file(kHead), "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
               },
               {kHead, "claims a header"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Index, BrokenCheckpoint,
    ::testing::Values(
        Broken{"empty", [](Copy& c) { testing::write_bytes(c.file(kIndex), ""); }, {kIndex, "not valid JSON"}},
        Broken{"list", [](Copy& c) { testing::write_bytes(c.file(kIndex), "[]"); }, {kIndex, "no weight_map"}},
        Broken{"number", [](Copy& c) { testing::write_bytes(c.file(kIndex), "3"); }, {kIndex, "must be a JSON object"}},
        Broken{"no_weight_map",
               [](Copy& c) { testing::write_bytes(c.file(kIndex), "{\"metadata\":{}}"); },
               {kIndex, "no weight_map"}},
        Broken{"weight_map_is_a_list",
               [](Copy& c) { testing::write_bytes(c.file(kIndex), "{\"weight_map\":[]}"); },
               {kIndex, "weight_map must be an object"}},
        Broken{"weight_map_is_a_number",
               [](Copy& c) { testing::write_bytes(c.file(kIndex), "{\"weight_map\":1}"); },
               {kIndex, "weight_map must be an object"}},
        Broken{"weight_map_twice",
               [](Copy& c) { testing::write_bytes(c.file(kIndex), "{\"weight_map\":{},\"weight_map\":{}}"); },
               {kIndex, "weight_map appears twice"}},
        Broken{"file_is_a_number",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = 7; }); },
               {kIndex, "\"norm.weight\" must be mapped to a file name"}},
        Broken{"file_is_an_object",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = Json::object(); }); },
               {kIndex, "\"norm.weight\" must be mapped"}},
        Broken{"tensor_twice",
               [](Copy& c) {
                 c.bytes(kIndex, [](std::string& s) {
                   s.insert(s.find("\"norm.weight\""), "\"norm.weight\":\"a.safetensors\",");
                 });
               },
               {kIndex, "\"norm.weight\" appears twice"}},
        Broken{"depth_bomb",
               [](Copy& c) { testing::write_bytes(c.file(kIndex), "{\"metadata\":" + std::string(100000, '[')); },
               {kIndex, "nested deeper"}},
        Broken{"path_traversal",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = "../model.safetensors"; }); },
               {"\"../model.safetensors\"", "not the name of a .safetensors file"}},
        Broken{"absolute_path",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = "/etc/model.safetensors"; }); },
               {"\"/etc/model.safetensors\"", "not the name"}},
        Broken{"subdirectory",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = "a/b.safetensors"; }); },
               {"\"a/b.safetensors\""}},
        Broken{"other_extension",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = "config.json"; }); },
               {"\"config.json\"", "not the name"}},
        Broken{"empty_file_name",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = ""; }); },
               {"\"\"", "not the name"}},
        Broken{"control_character",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = "a\nb.safetensors"; }); },
               {"\"a?b.safetensors\""}},
        Broken{"names_an_absent_shard",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = "model-00099.safetensors"; }); },
               {"model-00099.safetensors", "No such file"}},
        Broken{"names_another_shard",
               [](Copy& c) { c.weight_map([](Json& m) { m["norm.weight"] = kEmbed; }); },
               {"the index puts tensor \"norm.weight\" in", kEmbed, kHead}},
        Broken{"names_an_unknown_tensor",
               [](Copy& c) { c.weight_map([](Json& m) { m["phantom"] = kHead; }); },
               {"\"phantom\"", kHead, "does not have it"}},
        Broken{"lacks_a_tensor",
               [](Copy& c) { c.weight_map([](Json& m) { m.erase("norm.weight"); }); },
               {"\"norm.weight\"", kHead, "not in the index"}},
        Broken{"lacks_a_shard",
               [](Copy& c) { c.weight_map([](Json& m) { m.erase("embed.weight"); }); },
               {"\"embed.weight\"", "is missing"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Tensors, BrokenCheckpoint,
    ::testing::Values(
        Broken{"renamed",
               [](Copy& c) {
                 c.header(kHead, [](Json& h) { rename(h, "norm.weight", "model.norm.weight"); });
                 c.weight_map([](Json& m) { rename(m, "norm.weight", "model.norm.weight"); });
               },
               {"2 problems", "\"norm.weight\" (BF16 [128]) is missing",
                "\"model.norm.weight\" is not part of this model"}},
        Broken{"in_two_shards",
               [](Copy& c) { c.header(kHead, [](Json& h) { rename(h, "head.weight", "embed.weight"); }); },
               {"\"embed.weight\" is in", kEmbed, kHead}},
        Broken{"wrong_dtype",
               dtype(kLayer0, "layers.0.attn.attn_sink", "I32"),
               {"\"layers.0.attn.attn_sink\" is I32 [8], must be F32 [8]"}},
        Broken{"codes_as_bytes",
               dtype(kLayer0, "layers.0.attn.wkv.weight", "U8"),
               {"\"layers.0.attn.wkv.weight\" is U8 [64, 128], must be F8_E4M3 [64, 128]"}},
        Broken{"scale_as_bytes",
               dtype(kLayer0, "layers.0.ffn.experts.3.w1.scale", "U8"),
               {"\"layers.0.ffn.experts.3.w1.scale\" is U8"}},
        Broken{"unknown_dtype",
               dtype(kLayer0, "layers.0.attn.wkv.weight", "F8_E4M3FNUZ"),
               {kLayer0, "unknown dtype \"F8_E4M3FNUZ\""}},
        Broken{"transposed",
               shape(kLayer0, "layers.0.attn.wkv.weight", {128, 64}),
               {"\"layers.0.attn.wkv.weight\" is F8_E4M3 [128, 64], must be F8_E4M3 [64, 128]"}},
        Broken{"flat", shape(kLayer0, "layers.0.attn.wkv.weight", {8192}), {"is F8_E4M3 [8192], must be"}},
        Broken{"size_is_not_shape",
               shape(kLayer0, "layers.0.attn.wkv.weight", {64, 127}),
               {kLayer0, "\"layers.0.attn.wkv.weight\" has 8192 bytes, but F8_E4M3 [64, 127] needs 8128"}},
        Broken{"shape_overflows",
               shape(kLayer0, "layers.0.attn.wkv.weight", {INT64_C(1) << 40, INT64_C(1) << 40}),
               {kLayer0, "too many elements"}},
        Broken{"five_dimensions",
               shape(kLayer0, "layers.0.attn.wkv.weight", {1, 1, 1, 64, 128}),
               {kLayer0, "more than 4 dimensions"}},
        Broken{"overlap",
               entry(kHead, "norm.weight", [](Json& e) { e["data_offsets"] = {0, 256}; }),
               {kHead, "\"norm.weight\"", "\"head.weight\"", "overlap"}},
        Broken{"offset_past_end",
               entry(kHead, "norm.weight",
                     [](Json& e) { e["data_offsets"] = {INT64_C(1) << 60, (INT64_C(1) << 60) + 256}; }),
               {kHead, "\"norm.weight\"", "truncated?"}},
        Broken{"extra_tensor",
               [](Copy& c) {
                 c.header(kHead, [](Json& h) {
                   h["lm_head.bias"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
                 });
                 c.weight_map([](Json& m) { m["lm_head.bias"] = kHead; });
               },
               {"\"lm_head.bias\" is not part of this model"}},
        Broken{"engram_table",
               shape(kEngram, "layers.1.engram.embed.weight", {330, 64}),
               {"\"layers.1.engram.embed.weight\" is F8_E4M3 [330, 64], must be F8_E4M3 [660, 32]"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    ConfigAgainstShards, BrokenCheckpoint,
    ::testing::Values(
        Broken{"wider",
               config("hidden_size", 160),
               {"\"embed.weight\" is BF16 [512, 128], must be BF16 [512, 160]", "... and"}},
        Broken{"more_experts",
               config("n_routed_experts", 17),
               {"\"layers.0.ffn.experts.16.w1.weight\" (I8 [64, 64]) is missing"}},
        Broken{"fewer_experts",
               config("n_routed_experts", 15),
               {"72 problems", "\"layers.0.ffn.gate.weight\" is BF16 [16, 128], must be BF16 [15, 128]", "... and"}},
        Broken{"larger_vocabulary",
               config("vocab_size", 544),
               {"\"head.weight\" is BF16 [512, 128], must be BF16 [544, 128]"}},
        Broken{"another_source",
               config("index_source_layer_ids", std::vector<int>{1, 3, 4, 7}),
               {"\"layers.7.attn.indexer.wq_b.weight\" (F8_E4M3 [1024, 64]) is missing",
                "\"layers.6.attn.indexer.wq_b.weight\" is not part of this model"}},
        Broken{
            "more_streams", config("hc_mult", 5), {"\"layers.0.hc_attn_fn\" is F32 [24, 512], must be F32 [35, 640]"}},
        Broken{"vision_without_tensors",
               [](Copy& c) {
                 c.config([](Json& j) {
                   j["vision_config"] = {{"num_hidden_layers", 1},   {"hidden_size", 64},
                                         {"num_attention_heads", 4}, {"intermediate_size", 96},
                                         {"patch_size", 14},         {"rope_theta", 10000},
                                         {"downsample_ratio", 3},    {"max_image_tokens", 64},
                                         {"min_pixels", 7056},       {"max_wh_ratio", nullptr}};
                 });
               },
               {"\"vision.patch_embed.proj.weight\" (BF16 [64, 588]) is missing", "\"image_start\""}},
        Broken{"invalid_config",
               config("hidden_size", 100),
               {"config.json", "hidden_size (100) must be a multiple of 32"},
               ErrorCode::kInvalidConfig}),
    [](const auto& broken) { return broken.param.name; });

TEST(Checkpoint, NotADirectory) {
  expect_error(ErrorCode::kNotFound, {"/nowhere", "not a directory"}, [] { Checkpoint::open("/nowhere"); });
  const std::string file = (testing::nano_checkpoint() / kConfig).string();
  expect_error(ErrorCode::kNotFound, {file, "not a directory"}, [&] { Checkpoint::open(file); });
}

// The message of a thoroughly broken directory stays short.
TEST(Checkpoint, ReasonsAreCapped) {
  Copy copy;
  copy.config([](Json& json) { json["text_config"]["moe_intermediate_size"] = 96; });
  expect_error(ErrorCode::kInvalidCheckpoint, {" problems: ", "; ... and "}, [&] { Checkpoint::open(copy.path()); });
}

TEST(Checkpoint, VisionTensorsNeedAVisionConfig) {
  const TemporaryDirectory directory;
  SynthesizeOptions options = testing::nano_options(directory.path().string());
  options.vision = true;
  synthesize_checkpoint(options);
  const std::string path = directory / kConfig;
  Json json = Json::parse(testing::read_bytes(path));
  json.erase("vision_config");
  testing::write_bytes(path, json.dump());
  expect_error(ErrorCode::kInvalidCheckpoint, {"\"aligner.w1.bias\" is not part of this model"},
               [&] { Checkpoint::open(directory.path().string()); });
}

}  // namespace
}  // namespace folio
