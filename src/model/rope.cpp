#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace folio {

std::vector<float> rope_frequencies(const Config& config, bool compressed) {
  const auto dim = static_cast<double>(config.qk_rope_head_dim);
  const double base = compressed ? config.compress_rope_theta : config.rope_theta;
  const size_t pairs = static_cast<size_t>(config.qk_rope_head_dim / 2);
  std::vector<float> frequencies(pairs);
  for (size_t j = 0; j < pairs; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dim);
    const auto power = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
    frequencies[j] = static_cast<float>(1.0 / static_cast<double>(power));
  }
  if (!compressed || !config.rope_scaling) return frequencies;

  const RopeScaling& yarn = *config.rope_scaling;
  const auto corrected_dim = [&](double rotations) {
    const auto original = static_cast<double>(yarn.original_max_position_embeddings);
    return dim * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(corrected_dim(yarn.beta_fast)), 0.0);
  const double high = std::min(std::ceil(corrected_dim(yarn.beta_slow)), dim - 1);
  const auto width = static_cast<float>(std::max(high - low, 1e-3));
  for (size_t j = 0; j < pairs; ++j) {
    const float ramp = std::clamp((static_cast<float>(j) - static_cast<float>(low)) / width, 0.0f, 1.0f);
    // 1 - smooth is not always ramp in fp32; the published code writes it so.
    const float smooth = 1.0f - ramp;
    frequencies[j] = frequencies[j] / static_cast<float>(yarn.factor) * (1.0f - smooth) + frequencies[j] * smooth;
  }
  return frequencies;
}

}  // namespace folio
