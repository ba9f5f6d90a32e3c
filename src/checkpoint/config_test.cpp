#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_test_util.h"
#include "checkpoint/presets.h"

namespace folio {
namespace {

using testing::expect_error;
using testing::Json;

Config published() { return parse_config(published_config_json(), "config.json"); }

TEST(Config, Published) {
  const Config c = published();
  EXPECT_EQ(c.bos_token_id, 0);
  EXPECT_EQ(c.eos_token_id, 1);
  EXPECT_EQ(c.pad_token_id, 2);
  EXPECT_EQ(c.image_token_id, 129264);
  EXPECT_EQ(c.vocab_size, 129280);
  EXPECT_EQ(c.hidden_size, 5120);
  EXPECT_EQ(c.moe_intermediate_size, 2304);
  EXPECT_EQ(c.num_hidden_layers, 40);
  EXPECT_EQ(c.num_attention_heads, 64);
  EXPECT_EQ(c.head_dim, 512);
  EXPECT_EQ(c.qk_rope_head_dim, 64);
  EXPECT_EQ(c.q_lora_rank, 1280);
  EXPECT_EQ(c.o_lora_rank, 1024);
  EXPECT_EQ(c.o_groups, 8);
  EXPECT_EQ(c.swiglu_limit, 10.0);
  EXPECT_EQ(c.rms_norm_eps, 1e-20);
  EXPECT_EQ(c.max_position_embeddings, 1048576);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.compress_rope_theta, 160000);
  EXPECT_EQ(c.rope_scaling, (RopeScaling{16, 32, 1, 65536}));
  EXPECT_EQ(c.routed_scaling_factor, 1.5);
  EXPECT_EQ(c.sliding_window, 128);
  EXPECT_EQ(c.compress_ratios.size(), 43u);
  EXPECT_EQ(c.index_n_heads, 32);
  EXPECT_EQ(c.index_head_dim, 128);
  EXPECT_EQ(c.index_topk, 512);
  EXPECT_EQ(c.candidate_topk_blocks, 2048);
  EXPECT_EQ(c.candidate_block_size, 8);
  EXPECT_EQ(c.hc_mult, 4);
  EXPECT_EQ(c.hc_sinkhorn_iters, 20);
  EXPECT_EQ(c.hc_eps, 1e-6);
  EXPECT_EQ(c.engram_compressed_vocab_size, 99092);
  EXPECT_EQ(c.dspark_target_layer_ids, (std::vector<int>{37, 38, 39}));
  EXPECT_EQ(c.total_layers(), 43);
  EXPECT_EQ(c.ratio(1), 0);
  EXPECT_EQ(c.ratio(19), 2);
  EXPECT_EQ(c.ratio(20), 1);
  EXPECT_EQ(c.ratio(42), 0);
  EXPECT_EQ(c.experts_of(39), (ExpertCount{384, 6}));
  EXPECT_EQ(c.experts_of(40), (ExpertCount{128, 3}));
  EXPECT_TRUE(c.is_kv_source(14));
  EXPECT_FALSE(c.is_kv_source(24));
  EXPECT_TRUE(c.is_index_source(24));
  EXPECT_EQ(c.engram_index(14), 1);
  EXPECT_EQ(c.engram_index(2), -1);
  EXPECT_EQ(c.engram_columns(), 24);
  EXPECT_EQ(c.hc_mix_size(), 24);
  EXPECT_EQ(c.vision, (VisionConfig{32, 1024, 16, 2816, 14, 3, 1024, 295936, 10000}));
}

// The released file: its size, and a fingerprint (FNV-1a) of the text with the published SHA-256 8be45ce0...
TEST(Config, PublishedTextIsTheReleasedFile) {
  const std::string text = published_config_json();
  EXPECT_EQ(text.size(), 3311u);
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  EXPECT_EQ(hash, 0xebf41f16270ad7c8ull);
}

// spec/model.md 8.2: first and last primes of each table; the sums are checked by parse_config().
TEST(Config, EngramPrimes) {
  const auto primes = engram_primes(published());
  ASSERT_EQ(primes.size(), 2u);
  ASSERT_EQ(primes[0].size(), 24u);
  EXPECT_EQ(primes[0].front(), 16000057);
  EXPECT_EQ(primes[0][8], 16000189);
  EXPECT_EQ(primes[0].back(), 16000463);
  EXPECT_EQ(primes[1].front(), 16000477);
  EXPECT_EQ(primes[1].back(), 16000889);
}

TEST(Config, EveryPresetIsValid) {
  for (const std::string& name : preset_names()) {
    for (const bool vision : {false, true}) {
      const Config c = parse_config(preset_config_json(name, vision, 284), name);
      EXPECT_EQ(c.vision.has_value(), vision) << name;
      EXPECT_EQ(c.image_token_id, c.vocab_size - 1) << name;
    }
  }
  expect_error(ErrorCode::kInvalidArgument, {"'huge'", "nano", "bench-cpu"},
               [] { preset_config_json("huge", false, 1); });
}

// Variants that are allowed.
TEST(Config, Accepts) {
  const std::vector<std::pair<const char*, std::function<void(Json&)>>> variants = {
      {"unknown keys", [](Json& j) { j["text_config"]["future_key"] = {{"a", {1, 2}}}; }},
      {"no vision", [](Json& j) { j.erase("vision_config"); }},
      {"vision null", [](Json& j) { j["vision_config"] = nullptr; }},
      {"no image token without vision",
       [](Json& j) {
         j.erase("vision_config");
         j.erase("image_token_id");
       }},
      {"no YaRN", [](Json& j) { j["text_config"]["rope_scaling"] = nullptr; }},
      {"no candidates", [](Json& j) { j["text_config"]["candidate_source_layer_id"] = -1; }},
      {"no Engram",
       [](Json& j) {
         for (const char* key : {"engram_layer_ids", "engram_num_embeddings"}) j["text_config"][key] = Json::array();
       }},
      {"no drafts",
       [](Json& j) {
         Json& text = j["text_config"];
         text["num_nextn_predict_layers"] = 0;
         text["compress_ratios"].erase(40);
         text["compress_ratios"].erase(40);
         text["compress_ratios"].erase(40);
         text.erase("dspark_block_size");
       }},
      {"rope_theta as a float", [](Json& j) { j["text_config"]["rope_theta"] = 10000.0; }},
  };
  for (const auto& [name, edit] : variants) {
    Json json = Json::parse(published_config_json());
    edit(json);
    EXPECT_NO_THROW(parse_config(json.dump(), name)) << name;
  }
}

struct Broken {
  const char* name;
  std::function<void(Json&)> edit;  // of the published config
  std::vector<std::string> says;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenConfig : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenConfig, IsRefusedWithItsReason) {
  Json json = Json::parse(published_config_json());
  GetParam().edit(json);
  expect_error(ErrorCode::kInvalidConfig, GetParam().says, [&] { parse_config(json.dump(), "dir/config.json"); });
}

// Sets a key of text_config.
template <typename Value>
std::function<void(Json&)> text(const char* key, Value value) {
  return [=](Json& json) { json["text_config"][key] = value; };
}
template <typename Value>
std::function<void(Json&)> vision(const char* key, Value value) {
  return [=](Json& json) { json["vision_config"][key] = value; };
}
std::function<void(Json&)> ratio(size_t layer, int value) {
  return [=](Json& json) { json["text_config"]["compress_ratios"][layer] = value; };
}
using Ids = std::vector<int>;

INSTANTIATE_TEST_SUITE_P(
    Native, BrokenConfig,
    ::testing::Values(
        Broken{"quant_method",
               [](Json& j) { j["quantization_config"]["quant_method"] = "awq"; },
               {"quantization_config.quant_method must be \"fp8\", is \"awq\""}},
        Broken{"weight_block_size",
               [](Json& j) { j["quantization_config"]["weight_block_size"] = {128, 128}; },
               {"quantization_config.weight_block_size must be [32,32], is [128,128]"}},
        Broken{"scale_fmt",
               [](Json& j) { j["quantization_config"]["scale_fmt"] = "float"; },
               {"quantization_config.scale_fmt"}},
        Broken{"activation_scheme",
               [](Json& j) { j["quantization_config"]["activation_scheme"] = "static"; },
               {"quantization_config.activation_scheme"}},
        Broken{"expert_dtype",
               [](Json& j) { j["quantization_config"]["expert_dtype"] = "fp8"; },
               {"quantization_config.expert_dtype must be \"fp4\""}},
        Broken{"no_quantization", [](Json& j) { j.erase("quantization_config"); }, {"quantization_config is missing"}},
        Broken{"quantization_is_a_list",
               [](Json& j) { j["quantization_config"] = {1}; },
               {"quantization_config must be an object, is [1]"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Identity, BrokenConfig,
    ::testing::Values(
        Broken{"architecture",
               [](Json& j) { j["architectures"] = {"DeepseekV4ForCausalLM"}; },
               {"architectures must be [\"DeepseekV41ForCausalLM\"]"}},
        Broken{"two_architectures", [](Json& j) { j["architectures"].push_back("X"); }, {"architectures must be"}},
        Broken{"model_type",
               [](Json& j) { j["model_type"] = "llama"; },
               {"model_type must be \"deepseek_v41\", is \"llama\""}},
        Broken{"text_model_type", text("model_type", "llama"), {"text_config.model_type"}},
        Broken{"no_text", [](Json& j) { j.erase("text_config"); }, {"text_config is missing"}},
        Broken{"text_is_a_string", [](Json& j) { j["text_config"] = "x"; }, {"text_config must be an object"}},
        Broken{"vision_is_a_list", [](Json& j) { j["vision_config"] = {1, 2}; }, {"vision_config must be an object"}},
        Broken{"eos_out_of_range",
               [](Json& j) { j["eos_token_id"] = 129280; },
               {"eos_token_id must be an integer from 0 to 129279, is 129280"}},
        Broken{"no_eos", [](Json& j) { j.erase("eos_token_id"); }, {"eos_token_id is missing"}},
        Broken{"two_eos", [](Json& j) { j["eos_token_id"] = {1, 2}; }, {"eos_token_id must be an integer"}},
        Broken{"image_token", [](Json& j) { j["image_token_id"] = -1; }, {"image_token_id must be an integer from 0"}},
        Broken{"scoring_func", text("scoring_func", "sigmoid"), {"text_config.scoring_func must be \"sqrtsoftplus\""}},
        Broken{"topk_method", text("topk_method", "greedy"), {"text_config.topk_method"}},
        Broken{"norm_topk_prob", text("norm_topk_prob", false), {"text_config.norm_topk_prob must be true, is false"}},
        Broken{"hidden_act", text("hidden_act", "gelu"), {"text_config.hidden_act"}},
        Broken{"attention_bias", text("attention_bias", true), {"text_config.attention_bias"}},
        Broken{"tied", text("tie_word_embeddings", true), {"text_config.tie_word_embeddings"}},
        Broken{"kv_heads", text("num_key_value_heads", 8), {"text_config.num_key_value_heads must be 1, is 8"}},
        Broken{"shared_experts", text("n_shared_experts", 2), {"text_config.n_shared_experts must be 1, is 2"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Dims, BrokenConfig,
    ::testing::Values(
        Broken{"zero_hidden", text("hidden_size", 0), {"text_config.hidden_size must be an integer from 1"}},
        Broken{"negative_vocab", text("vocab_size", -5), {"text_config.vocab_size must be an integer from 1"}},
        Broken{"float_layers", text("num_hidden_layers", 40.5), {"text_config.num_hidden_layers must be an integer"}},
        Broken{"integral_float", text("head_dim", 512.0), {"text_config.head_dim must be an integer", "512.0"}},
        Broken{"string_heads",
               text("num_attention_heads", "64"),
               {"text_config.num_attention_heads must be an integer", "\"64\""}},
        Broken{"bool_groups", text("o_groups", true), {"text_config.o_groups must be an integer", "true"}},
        Broken{"null_rank", text("q_lora_rank", nullptr), {"text_config.q_lora_rank must be an integer", "null"}},
        Broken{"huge",
               text("moe_intermediate_size", UINT64_MAX),
               {"text_config.moe_intermediate_size must be an integer", "18446744073709551615"}},
        Broken{"huge_product",
               text("num_hidden_layers", 512),
               {"num_hidden_layers x n_routed_experts (196608) is more than"}},
        Broken{
            "missing", [](Json& j) { j["text_config"].erase("o_lora_rank"); }, {"text_config.o_lora_rank is missing"}},
        Broken{"hidden_not_32", text("hidden_size", 5000), {"text_config.hidden_size (5000) must be a multiple of 32"}},
        Broken{"inner_not_32",
               text("moe_intermediate_size", 2300),
               {"text_config.moe_intermediate_size (2300) must be a multiple of 32"}},
        Broken{"head_not_32", text("head_dim", 500), {"text_config.head_dim (500) must be a multiple of 32"}},
        Broken{"rank_not_32", text("q_lora_rank", 1281), {"text_config.q_lora_rank (1281)"}},
        Broken{"latent_not_32", text("o_lora_rank", 1), {"o_groups x o_lora_rank (8) must be a multiple of 32"}},
        Broken{"index_not_32", text("index_head_dim", 72), {"text_config.index_head_dim (72)"}},
        Broken{"heads_and_groups",
               text("num_attention_heads", 63),
               {"num_attention_heads (63) must be a multiple of o_groups (8)"}},
        Broken{"odd_rope", text("qk_rope_head_dim", 63), {"qk_rope_head_dim (63) must be even"}},
        Broken{"rope_wider_than_index",
               text("qk_rope_head_dim", 130),
               {"qk_rope_head_dim (130) must not exceed head_dim (512) or index_head_dim (128)"}},
        Broken{"more_per_token",
               text("n_routed_experts", 5),
               {"num_experts_per_tok (6) must not exceed n_routed_experts (5)"}},
        Broken{"streams", text("hc_mult", 9), {"text_config.hc_mult"}},
        Broken{"eps", text("rms_norm_eps", -1e-20), {"text_config.rms_norm_eps must be a number from"}},
        Broken{"limit", text("swiglu_limit", nullptr), {"text_config.swiglu_limit must be a number"}},
        Broken{"theta", text("rope_theta", 1), {"text_config.rope_theta must be a number from 1.0001"}},
        Broken{"scaling_type",
               [](Json& j) { j["text_config"]["rope_scaling"]["rope_type"] = "linear"; },
               {"text_config.rope_scaling.rope_type must be \"yarn\""}},
        Broken{"scaling_factor",
               [](Json& j) { j["text_config"]["rope_scaling"].erase("factor"); },
               {"text_config.rope_scaling.factor is missing"}},
        Broken{"scaling_betas",
               [](Json& j) { j["text_config"]["rope_scaling"]["beta_slow"] = 40; },
               {"beta_fast (32) must be larger than beta_slow (40)"}},
        Broken{"vision_heads",
               vision("num_attention_heads", 15),
               {"vision_config.hidden_size (1024) must be a multiple of 4 x num_attention_heads (15)"}},
        Broken{"vision_patch", vision("patch_size", 0), {"vision_config.patch_size"}},
        Broken{"vision_missing",
               [](Json& j) { j["vision_config"].erase("downsample_ratio"); },
               {"vision_config.downsample_ratio is missing"}},
        Broken{"vision_ratio", vision("max_wh_ratio", 4), {"vision_config.max_wh_ratio must be null, is 4"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Schedule, BrokenConfig,
    ::testing::Values(
        Broken{"ratio_3", ratio(5, 3), {"text_config.compress_ratios[5] must be an integer from 0 to 2, is 3"}},
        Broken{"ratios_not_a_list", text("compress_ratios", 2), {"text_config.compress_ratios must be a list"}},
        Broken{"too_few_ratios",
               [](Json& j) { j["text_config"]["compress_ratios"].erase(0); },
               {"compress_ratios has 42 entries", "40 layers and 3 draft stages"}},
        Broken{"draft_ratio", ratio(41, 1), {"compress_ratios[41] is 1, but a draft stage is window-only"}},
        Broken{"no_owner_before",
               ratio(1, 2),
               {"layer 1 with compress_ratios 2 needs a layer in kv_source_layer_ids", "there is none"}},
        Broken{"owner_of_other_ratio", ratio(9, 1), {"layer 9 with compress_ratios 1", "layer 8 has ratio 2"}},
        Broken{"owner_is_window_only", ratio(8, 0), {"layer 8 has compress_ratios 0"}},
        Broken{"owner_is_no_index_source",
               text("index_source_layer_ids", Ids{2, 14, 20, 24, 28, 32, 36}),
               {"kv_source_layer_ids: layer 8 must also be in index_source_layer_ids"}},
        Broken{"owners_not_sorted",
               text("kv_source_layer_ids", Ids{8, 2, 14, 20}),
               {"kv_source_layer_ids must be ascending"}},
        Broken{"owner_twice",
               text("kv_source_layer_ids", Ids{2, 8, 8, 14, 20}),
               {"kv_source_layer_ids must be ascending without repeats"}},
        Broken{"source_out_of_range",
               text("index_source_layer_ids", Ids{2, 8, 14, 20, 40}),
               {"index_source_layer_ids names layer 40, but num_hidden_layers is 40"}},
        Broken{"negative_source",
               text("kv_source_layer_ids", Ids{-2, 8}),
               {"kv_source_layer_ids[0] must be an integer from 0"}},
        Broken{"candidate_no_source",
               text("candidate_source_layer_id", 21),
               {"candidate_source_layer_id (21) must be in index_source_layer_ids"}},
        Broken{"candidates_of_another_owner",
               text("candidate_source_layer_id", 14),
               {"layer 20 would read the candidates of layer 14"}},
        Broken{"candidates_too_few",
               text("candidate_topk_blocks", 64),
               {"candidate blocks must be able to hold a whole top-k", "(64)"}},
        Broken{"candidate_size", text("candidate_block_size", 0), {"text_config.candidate_block_size"}},
        Broken{"window", text("sliding_window", 0), {"text_config.sliding_window"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    EngramAndDrafts, BrokenConfig,
    ::testing::Values(
        Broken{"table_sizes",
               text("engram_num_embeddings", std::vector<int64_t>{384006168}),
               {"engram_num_embeddings has 1 entries for the 2 layers"}},
        Broken{"prime_sum",
               text("engram_num_embeddings", std::vector<int64_t>{384006168, 384016683}),
               {"engram_num_embeddings[1] is 384016683", "sum to 384016682"}},
        Broken{"zero_rows",
               text("engram_num_embeddings", std::vector<int64_t>{0, 384016682}),
               {"engram_num_embeddings[0] must be an integer from 1"}},
        Broken{"layer_out_of_range", text("engram_layer_ids", Ids{1, 41}), {"engram_layer_ids names layer 41"}},
        Broken{"layers_not_sorted", text("engram_layer_ids", Ids{14, 1}), {"engram_layer_ids must be ascending"}},
        Broken{"pad", text("engram_pad_token_id", 129280), {"engram_pad_token_id (129280) must be below vocab_size"}},
        Broken{"compressed",
               text("engram_compressed_vocab_size", 129281),
               {"engram_compressed_vocab_size (129281) must not exceed vocab_size"}},
        Broken{"ngram", text("engram_max_ngram_size", 1), {"text_config.engram_max_ngram_size"}},
        Broken{"too_many_columns", text("engram_n_heads", 1000), {"engram hash columns over all layers (6000) exceed"}},
        Broken{"engram_dim", text("engram_head_dim", 250), {"engram_head_dim (250) must be a multiple of 32"}},
        Broken{"targets_out_of_range",
               text("dspark_target_layer_ids", Ids{37, 38, 40}),
               {"dspark_target_layer_ids names layer 40"}},
        Broken{
            "no_targets", text("dspark_target_layer_ids", Ids{}), {"dspark_target_layer_ids must name at least one"}},
        Broken{"noise",
               text("dspark_noise_token_id", 129280),
               {"dspark_noise_token_id (129280) must be below vocab_size"}},
        Broken{"draft_experts",
               text("dspark_num_experts_per_tok", 0),
               {"text_config.dspark_num_experts_per_tok must be an integer from 1"}},
        Broken{"draft_more_per_token",
               [](Json& j) { j["text_config"]["dspark_n_routed_experts"] = 2; },
               {"dspark_num_experts_per_tok (3) must not exceed dspark_n_routed_experts (2)"}},
        Broken{"stages", text("num_nextn_predict_layers", -1), {"text_config.num_nextn_predict_layers"}}),
    [](const auto& broken) { return broken.param.name; });

TEST(Config, AllReasonsAreInOneMessage) {
  Json json = Json::parse(published_config_json());
  json["model_type"] = "x";
  json["text_config"]["hidden_size"] = 100;
  json["text_config"]["num_attention_heads"] = 63;
  json["text_config"].erase("rope_theta");
  json["vision_config"]["patch_size"] = "14";
  json["quantization_config"]["scale_fmt"] = nullptr;
  expect_error(ErrorCode::kInvalidConfig,
               {"6 problems", "model_type", "hidden_size (100)", "num_attention_heads (63)", "rope_theta is missing",
                "vision_config.patch_size", "quantization_config.scale_fmt"},
               [&] { parse_config(json.dump(), "dir/config.json"); });
}

// Text that is no usable document.
TEST(Config, HostileText) {
  const auto refused = [](const std::string& text, const std::string& says) {
    expect_error(ErrorCode::kInvalidConfig, {"dir/config.json", says}, [&] { parse_config(text, "dir/config.json"); });
  };
  refused("", "not valid JSON");
  refused("{", "not valid JSON at byte");
  refused("[]", "must be a JSON object");
  refused("null", "must be a JSON object");
  refused(R"({"a": 1e999})", "out of range");
  refused(R"({"a": 1, "b": {"a": 1, "a": 2}})", "the key \"a\" appears twice");
  refused("{\"bad\x01\": 1}", "not valid JSON");
  refused("{\"\xff\": 1}", "not valid JSON");
  refused(std::string(100000, '['), "nested deeper than 16");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  refused(objects, "nested deeper than 16");
  refused("{\"text_config\":" + std::string(20, '[') + std::string(20, ']') + "}", "nested deeper than 16");
}

TEST(Config, LongAndStrangeValuesAreCutInMessages) {
  Json json = Json::parse(published_config_json());
  json["model_type"] = std::string(100000, 'x') + "\n";
  json["text_config"]["kv_source_layer_ids"] = std::vector<int>(100000, -1);
  expect_error(ErrorCode::kInvalidConfig, {"model_type", "a list of 100000 values"},
               [&] { parse_config(json.dump(), "dir/config.json"); });
}

TEST(Config, LoadNamesTheFile) {
  const testing::TemporaryDirectory directory;
  expect_error(ErrorCode::kNotFound, {"config.json", "No such file"}, [&] { load_config(directory.path().string()); });
  std::ofstream(directory / "config.json") << published_config_json();
  EXPECT_EQ(load_config(directory.path().string()), published());
}

}  // namespace
}  // namespace folio
