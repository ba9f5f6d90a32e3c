#include "engine/speculation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace folio {
namespace {

void count_at(std::vector<int64_t>& counts, int32_t index) {
  const auto place = static_cast<size_t>(index);
  if (counts.size() <= place) counts.resize(place + 1);
  ++counts[place];
}

}  // namespace

void SpeculationStats::add(int32_t drafts, int32_t accepted_drafts) {
  ++verifications;
  const auto count = static_cast<size_t>(drafts);
  if (drafted.size() < count) {
    drafted.resize(count);
    accepted.resize(count);
  }
  for (size_t i = 0; i < count; ++i) ++drafted[i];
  for (size_t i = 0; i < static_cast<size_t>(accepted_drafts); ++i) ++accepted[i];
}

void SpeculationStats::add_block(int32_t drafts) { count_at(widths, drafts); }
void SpeculationStats::add_length(int32_t drafts) { count_at(lengths, drafts); }
int64_t SpeculationStats::drafted_tokens() const { return std::reduce(drafted.begin(), drafted.end()); }
int64_t SpeculationStats::accepted_tokens() const { return std::reduce(accepted.begin(), accepted.end()); }

double SpeculationStats::accepted_length() const {
  if (verifications == 0) return 0;
  return 1 + static_cast<double>(accepted_tokens()) / static_cast<double>(verifications);
}

std::vector<int64_t> SpeculationStats::by_accepted() const {
  std::vector<int64_t> counts;
  int64_t reached = verifications;
  for (const int64_t further : accepted) {
    counts.push_back(reached - further);
    reached = further;
  }
  counts.push_back(reached);
  return counts;
}

std::string speculation_summary(const SpeculationStats& stats) {
  if (stats.verifications == 0 && stats.skipped_steps == 0) return "";
  char text[160];
  std::string summary = "no draft verified";
  if (stats.verifications > 0) {
    std::snprintf(text, sizeof text, "%.2f tokens a verification, %lld of %lld drafts accepted, by position",
                  stats.accepted_length(), static_cast<long long>(stats.accepted_tokens()),
                  static_cast<long long>(stats.drafted_tokens()));
    summary = text;
  }
  for (size_t i = 0; i < stats.drafted.size(); ++i) {
    const double share = static_cast<double>(stats.accepted[i]) / static_cast<double>(stats.drafted[i]);
    std::snprintf(text, sizeof text, " %.0f %%", 100 * share);
    summary += text;
  }
  if (stats.skipped_steps > 0)
    summary += concat("; ", stats.skipped_steps, " steps without drafting, which did not pay");
  return summary;
}

int32_t ForcedAcceptance::accepts(uint64_t stream, int64_t index, int32_t drafts) const {
  constexpr uint64_t kSeed = 0x5EED;
  const auto certain = static_cast<int32_t>(std::floor(length_ - 1));
  const double rest = length_ - 1 - certain;
  const bool one_more = random_uniform(kSeed, stream, static_cast<uint64_t>(index)) < rest;
  return std::min(drafts, certain + (one_more ? 1 : 0));
}

std::optional<std::string> forced_refusal(double length, int32_t num_speculative_tokens, const char* tokens_name) {
  if (num_speculative_tokens == 0) return "forced speculative acceptance needs --speculative dspark";
  if (length >= 1 && length <= num_speculative_tokens + 1) return std::nullopt;
  return concat("--spec-decode-acceptance-length ", length, " must be from 1 to ", num_speculative_tokens + 1,
                ", one more than ", tokens_name);
}

}  // namespace folio
