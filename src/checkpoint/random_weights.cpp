#include "checkpoint/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "numerics/bf16.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"
#include "numerics/quantize.h"

namespace folio {
namespace {

constexpr float kEmbeddingScale = 0.7f;
constexpr float kMarkovEmbeddingScale = 0.5f;

// Standard deviation of a projection as a multiple of fan_in^-0.5, by the end of its name, first match. Sublayer
// outputs are kept small against the residual streams, as in the released model: otherwise one flipped rounding in an
// early layer decides the whole result and comparisons mean little.
constexpr std::array<std::pair<std::string_view, float>, 15> kGains = {{{"attn.wq_a", 1.3f},
                                                                        {"attn.wq_b", 1.1f},
                                                                        {"attn.wkv", 1.3f},
                                                                        {"attn.wo_a", 1.6f},
                                                                        {"attn.wo_b", 0.3f},
                                                                        {"ffn.gate", 1.6f},
                                                                        {"aligner.w2", 0.8f},
                                                                        {"w1", 1.6f},
                                                                        {"w3", 1.6f},
                                                                        {"w2", 0.11f},
                                                                        {"compressor.wgate", 2.5f},
                                                                        {"indexer.wk", 1.2f},
                                                                        {"indexer.weights_proj", 2.0f},
                                                                        {"engram.wkv", 0.35f},
                                                                        {"mtp.0.main_proj", 1.2f}}};
constexpr float kConfidenceGain = 1.5f;

constexpr std::array<std::pair<std::string_view, float>, 6> kNormMeans = {
    {{"attn_norm", 0.8f}, {"ffn_norm", 0.9f}, {"q_norm", 0.97f}, {"kv_norm", 0.9f}, {"norm", 0.9f}, {"k_norm", 0.8f}}};

// Standard normal quantile (Acklam's rational approximation, relative error below 1.2e-9).
double normal_quantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                          -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  if (p > 0.5) return -normal_quantile(1 - p);
  if (p < 0.02425) {
    const double q = std::sqrt(-2 * std::log(p));
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  }
  const double q = p - 0.5;
  const double r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

// Normal draws are picked from equally likely quantiles: one 64-bit hash gives four of them, an order of magnitude
// cheaper than transforming uniforms.
const std::vector<float>& quantiles() {
  static const std::vector<float> table = [] {
    constexpr size_t kCount = 1 << 16;
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(kCount)));
    }
    return values;
  }();
  return table;
}

// FNV-1a.
uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// "layers.0.attn.wkv.weight" -> "layers.0.attn.wkv"
std::string_view owner_of(std::string_view name) { return name.substr(0, std::min(name.rfind('.'), name.size())); }

// The last component, or the one before ".weight" and ".bias".
std::string_view leaf_of(std::string_view name) {
  if (name.ends_with(".weight") || name.ends_with(".bias")) name = owner_of(name);
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

float amax(const float* x, int64_t n, float floor) { return detail::amax(x, n, floor); }

float scale8(float largest) { return pow2up(largest * std::bit_cast<float>(0x3b124925u)); }
float scale4(float largest) { return pow2up(largest * std::bit_cast<float>(0x3e2aaaabu)); }

uint8_t* resized(std::vector<std::byte>& bytes, int64_t size) {
  bytes.resize(static_cast<size_t>(size));
  return reinterpret_cast<uint8_t*>(bytes.data());
}

// FP8 with one scale per 32 x 32 tile; `x` holds [rows, columns].
void encode_tiles(const float* x, int64_t rows, int64_t columns, uint8_t* codes, uint8_t* scales) {
  const int64_t tile_columns = (columns + kTile - 1) / kTile;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const int64_t r1 = std::min(rows, r0 + kTile);
    for (int64_t t = 0; t < tile_columns; ++t) {
      const int64_t c0 = t * kTile;
      const int64_t width = std::min(columns - c0, kTile);
      float largest = 1e-4f;
      for (int64_t r = r0; r < r1; ++r) largest = amax(x + r * columns + c0, width, largest);
      const float scale = scale8(largest);
      scales[r0 / kTile * tile_columns + t] = e8m0_encode(scale);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = r * columns + c0; c < r * columns + c0 + width; ++c) codes[c] = e4m3_encode(x[c] / scale);
      }
    }
  }
}

// FP8 with one scale per 32 values.
void encode_groups8(const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t g = 0; g < n; g += kTile) {
    const float scale = scale8(amax(x + g, kTile, 1e-4f));
    scales[g / kTile] = e8m0_encode(scale);
    for (int64_t i = g; i < g + kTile; ++i) codes[i] = e4m3_encode(x[i] / scale);
  }
}

// Packed FP4 with one scale per 32 values.
void encode_groups4(const float* x, int64_t n, uint8_t* packed, uint8_t* scales) {
  for (int64_t g = 0; g < n; g += kTile) {
    const float scale = scale4(amax(x + g, kTile, 0x1p-100f));
    scales[g / kTile] = e8m0_encode(scale);
    detail::pack_e2m1(x + g, kTile, scale, packed + g / 2);
  }
}

}  // namespace

RandomWeights::RandomWeights(const Config& config, uint64_t seed) : config_(config), seed_(seed) {
  // Fisher-Yates; next(v) = successor[v].
  std::vector<int64_t> successor(static_cast<size_t>(config.vocab_size));
  std::iota(successor.begin(), successor.end(), 0);
  const uint64_t stream = hash_name("successor");
  for (size_t i = successor.size(); i > 1; --i)
    std::swap(successor[i - 1], successor[random_bits(seed, stream, i) % i]);
  predecessor_.resize(successor.size());
  for (size_t v = 0; v < successor.size(); ++v)
    predecessor_[static_cast<size_t>(successor[v])] = static_cast<int64_t>(v);
}

RandomWeights::Recipe RandomWeights::recipe_of(std::string_view name, int64_t fan_in) const {
  using Kind = Recipe::Kind;
  const float by_fan_in = 1 / std::sqrt(static_cast<float>(fan_in));
  const std::string_view leaf = leaf_of(name);
  if (name == "embed.weight") return {Kind::kEmbedding, 0, kEmbeddingScale};
  if (name == "head.weight") return {Kind::kHead, 0, by_fan_in};
  if (name.ends_with("markov_head.embed.weight")) return {Kind::kPlain, 0, kMarkovEmbeddingScale};
  if (name.ends_with("markov_head.head.weight")) return {Kind::kMarkovHead, 0, by_fan_in};
  if (leaf.ends_with("norm") || leaf == "norm1" || leaf == "norm2") {
    const auto* found =
        std::find_if(kNormMeans.begin(), kNormMeans.end(), [&](auto& entry) { return entry.first == leaf; });
    const float mean = found == kNormMeans.end() ? 1.0f : found->second;
    return {Kind::kPlain, mean, 0.15f * mean};
  }
  if (leaf == "q_weight" || leaf == "k_weight") return {Kind::kPlain, 1, 0.3f};
  if (leaf == "attn_sink") return {Kind::kPlain, 0, 1};
  if (leaf.starts_with("hc_")) {
    if (leaf.ends_with("_fn")) return {Kind::kPlain, 0, by_fan_in};
    return {leaf.ends_with("_scale") ? Kind::kHyperScale : Kind::kHyperBase, 0, 1};
  }
  if (name.ends_with(".bias") || name.ends_with(".bias_vl")) {
    return {Kind::kPlain, 0, name.find(".gate.") != std::string_view::npos ? 0.15f : 0.2f};
  }
  if (leaf.starts_with("image_")) return {Kind::kPlain, 0, kEmbeddingScale};
  if (name.ends_with("engram.embed.weight")) return {Kind::kPlain, 0, 1};
  const std::string_view owner = owner_of(name);
  if (owner.ends_with("confidence_head.proj")) return {Kind::kPlain, 0, kConfidenceGain * by_fan_in};
  for (const auto& [suffix, gain] : kGains) {
    if (owner.ends_with(suffix)) return {Kind::kPlain, 0, gain * by_fan_in};
  }
  return {Kind::kPlain, 0, by_fan_in};
}

void RandomWeights::noise(std::string_view name, int64_t first, std::span<float> out) const {
  const float* table = quantiles().data();
  const uint64_t key = mix64(mix64(seed_) ^ hash_name(name));
  const auto count = static_cast<int64_t>(out.size());
  int64_t i = 0;
  const auto single = [&](int64_t position) {
    const uint64_t bits = mix64(key ^ static_cast<uint64_t>(position / 4));
    return table[bits >> (16 * (position % 4)) & 0xffff];
  };
  for (; i < count && (first + i) % 4 != 0; ++i) out[static_cast<size_t>(i)] = single(first + i);
  for (float* to = out.data() + i; i + 4 <= count; i += 4, to += 4) {
    const uint64_t bits = mix64(key ^ static_cast<uint64_t>((first + i) / 4));
    to[0] = table[bits & 0xffff];
    to[1] = table[bits >> 16 & 0xffff];
    to[2] = table[bits >> 32 & 0xffff];
    to[3] = table[bits >> 48];
  }
  for (; i < count; ++i) out[static_cast<size_t>(i)] = single(first + i);
}

// The noise token's row is small: drafts begin with it, and would all propose next(noise) otherwise.
void RandomWeights::embedding_noise(int64_t first_row, int64_t count, std::span<float> out) const {
  noise("embed.weight", first_row * config_.hidden_size, out);
  const int64_t quiet = config_.dspark_noise_token_id - first_row;
  if (config_.num_nextn_predict_layers == 0 || quiet < 0 || quiet >= count) return;
  for (float& x :
       out.subspan(static_cast<size_t>(quiet * config_.hidden_size), static_cast<size_t>(config_.hidden_size))) {
    x *= 0.15f;
  }
}

void RandomWeights::values(std::string_view name, int64_t columns, int64_t first_row, int64_t count,
                           std::span<float> out) const {
  const Recipe recipe = recipe_of(name, columns);
  const auto width = static_cast<size_t>(columns);
  noise(name, first_row * columns, out);
  std::vector<float> source(width);
  switch (recipe.kind) {
    case Recipe::Kind::kPlain:
      break;
    case Recipe::Kind::kEmbedding:
      embedding_noise(first_row, count, out);
      break;
    case Recipe::Kind::kHead: {  // row next(v) looks like the embedding of v
      const float pull = 0.8f * std::sqrt(128.0f / static_cast<float>(columns));
      for (int64_t r = 0; r < count; ++r) {
        embedding_noise(predecessor_[static_cast<size_t>(first_row + r)], 1, source);
        float* row = out.data() + r * columns;
        for (size_t i = 0; i < width; ++i) row[i] = 1.5f * row[i] + pull * source[i];
      }
      break;
    }
    case Recipe::Kind::kMarkovHead: {
      const std::string embed = std::string(name.substr(0, name.size() - 11)) + "embed.weight";
      for (int64_t r = 0; r < count; ++r) {
        noise(embed, predecessor_[static_cast<size_t>(first_row + r)] * columns, source);
        float* row = out.data() + r * columns;
        for (size_t i = 0; i < width; ++i) row[i] += 1.6f * source[i];
      }
      break;
    }
    case Recipe::Kind::kHyperBase: {  // comb favours staying in place, pre leans towards closed
      const int64_t s = config_.hc_mult;
      for (int64_t r = 0; r < count; ++r) {
        const int64_t at = first_row + r;
        float& x = out[static_cast<size_t>(r)];
        x *= 0.4f;
        if (at < s) x -= 0.5f;
        if (at >= 2 * s && (at - 2 * s) % (s + 1) == 0) x += 2.0f;
      }
      break;
    }
    case Recipe::Kind::kHyperScale: {
      constexpr std::array kMean = {0.8f, 0.7f, 1.2f};
      for (int64_t r = 0; r < count; ++r) {
        out[static_cast<size_t>(r)] = kMean[static_cast<size_t>(first_row + r)] + 0.1f * out[static_cast<size_t>(r)];
      }
      break;
    }
  }
  for (float& x : out) x = recipe.mean + recipe.scale * x;
}

void RandomWeights::rows(const TensorSpec& weight, int64_t first, int64_t count, std::vector<std::byte>& bytes,
                         std::vector<std::byte>& scales) const {
  const bool packed = weight.dtype == DType::kI8;
  const int64_t columns = weight.shape.rank() == 2 ? weight.shape[1] * (packed ? 2 : 1) : 1;
  const int64_t n = count * columns;
  std::vector<float> x(static_cast<size_t>(n));
  values(weight.name, columns, first, count, x);
  scales.clear();
  switch (weight.dtype) {
    case DType::kBF16: {
      auto* out = reinterpret_cast<bf16*>(resized(bytes, 2 * n));
      std::transform(x.begin(), x.end(), out, to_bf16);
      return;
    }
    case DType::kF32:
      std::memcpy(resized(bytes, 4 * n), x.data(), static_cast<size_t>(4 * n));
      return;
    case DType::kI8:
      encode_groups4(x.data(), n, resized(bytes, n / 2), resized(scales, n / kTile));
      return;
    case DType::kF8E4M3:
      if (weight.part == Part::kEngramTables) {
        encode_groups8(x.data(), n, resized(bytes, n), resized(scales, n / kTile));
      } else {
        const int64_t tiles = ((count + kTile - 1) / kTile) * ((columns + kTile - 1) / kTile);
        encode_tiles(x.data(), count, columns, resized(bytes, n), resized(scales, tiles));
      }
      return;
    default:
      FOLIO_CHECK(false, weight.name, " is made with its weight");
  }
}

}  // namespace folio
