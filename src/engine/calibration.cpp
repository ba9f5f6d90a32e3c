#include "engine/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace folio {
namespace {

// Collects predictions of one position.
class Bins {
 public:
  void add(double predicted, bool survived) {
    const auto bin = std::min<size_t>(Reliability::kBins - 1, static_cast<size_t>(predicted * Reliability::kBins));
    ReliabilityBin& sums = result_.bins[bin];
    ++sums.blocks;
    sums.predicted += predicted;
    sums.observed += survived ? 1 : 0;
    result_.log_loss -= std::log(survived ? predicted : 1 - predicted);
    ++result_.blocks;
  }
  Reliability result() {
    if (result_.blocks > 0) result_.log_loss /= static_cast<double>(result_.blocks);
    for (ReliabilityBin& bin : result_.bins) {
      if (bin.blocks == 0) continue;
      result_.ece += std::abs(bin.predicted - bin.observed) / static_cast<double>(result_.blocks);
      bin.predicted /= static_cast<double>(bin.blocks);
      bin.observed /= static_cast<double>(bin.blocks);
    }
    return result_;
  }

 private:
  Reliability result_;
};

// `before`: survival up to the position, of each block.
Reliability measure(std::span<const DraftBlock> blocks, std::span<const double> before, int32_t position,
                    double temperature) {
  Bins bins;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].knows(position)) continue;
    const double confidence = calibrated_confidence(blocks[i].logits[static_cast<size_t>(position)], temperature);
    bins.add(before[i] * confidence, blocks[i].survives(position));
  }
  return bins.result();
}

void advance(std::span<const DraftBlock> blocks, std::vector<double>& before, int32_t position, double temperature) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    before[i] *= calibrated_confidence(blocks[i].logits[static_cast<size_t>(position)], temperature);
  }
}

double best_temperature(std::span<const DraftBlock> blocks, std::span<const double> before, int32_t position) {
  constexpr int kSteps = 80;  // on either side of 1
  struct Tried {
    double temperature, ece, log_loss;
  };
  std::vector<Tried> tried;
  int64_t known = 0;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const double temperature = std::pow(4.0, static_cast<double>(step) / kSteps);
    const Reliability found = measure(blocks, before, position, temperature);
    tried.push_back({temperature, found.ece, found.log_loss});
    known = found.blocks;
  }
  // What chance alone makes of the ECE, roughly: each bin's mean is off by half the root of its blocks.
  const double chance = 0.5 * std::sqrt(Reliability::kBins / static_cast<double>(known));
  const double least = std::ranges::min(tried, {}, &Tried::ece).ece;
  const Tried plain = tried[kSteps];
  std::erase_if(tried, [&](const Tried& t) { return t.ece > least + chance; });
  const Tried best = std::ranges::min(tried, {}, &Tried::log_loss);
  // Few blocks fit any temperature by luck: without the likelihood ratio of two standard deviations 1 stays.
  const bool lucky = plain.ece <= least + chance && static_cast<double>(known) * (plain.log_loss - best.log_loss) < 2;
  return lucky ? 1 : best.temperature;
}

}  // namespace

Reliability reliability(std::span<const DraftBlock> blocks, int32_t position, std::span<const double> temperatures) {
  std::vector<double> before(blocks.size(), 1.0);
  for (int32_t i = 0; i < position; ++i) advance(blocks, before, i, temperatures[static_cast<size_t>(i)]);
  return measure(blocks, before, position, temperatures[static_cast<size_t>(position)]);
}

std::vector<double> fit_temperatures(std::span<const DraftBlock> blocks, int32_t width) {
  std::vector<double> temperatures, before(blocks.size(), 1.0);
  for (int32_t position = 0; position < width; ++position) {
    if (std::ranges::none_of(blocks, [&](const DraftBlock& block) { return block.knows(position); })) {
      fail(ErrorCode::kInvalidArgument, "nothing was observed of position ", position + 1,
           " of a draft: give more prompts, or longer answers");
    }
    temperatures.push_back(best_temperature(blocks, before, position));
    advance(blocks, before, position, temperatures.back());
  }
  return temperatures;
}

double lower_quartile(std::vector<double> seconds) {
  FOLIO_CHECK(!seconds.empty());
  const auto quarter = seconds.begin() + std::ssize(seconds) / 4;
  std::ranges::nth_element(seconds, quarter);
  return *quarter;
}

std::vector<double> latency_envelope(std::span<const TimedStep> points, int64_t size) {
  FOLIO_CHECK(!points.empty());
  std::map<int64_t, double> slowest;
  for (const TimedStep& point : points) {
    double& seconds = slowest[point.size];
    seconds = std::max(seconds, point.seconds);
  }
  double most = 0;
  for (auto& [at, seconds] : slowest) seconds = most = std::max(most, seconds);
  std::vector<double> envelope;
  for (int64_t at = 0; at <= size; ++at) {
    const auto right = slowest.lower_bound(at);
    if (right == slowest.end()) {
      envelope.push_back(most);
    } else if (right->first == at || right == slowest.begin()) {
      envelope.push_back(right->second);
    } else {
      const auto left = std::prev(right);
      const double share = static_cast<double>(at - left->first) / static_cast<double>(right->first - left->first);
      envelope.push_back(left->second + share * (right->second - left->second));
    }
  }
  return envelope;
}

StepCosts step_costs(std::span<const TimedStep> forwards, std::span<const std::vector<TimedStep>> drafts,
                     int32_t max_num_seqs) {
  StepCosts costs;
  for (const double seconds : latency_envelope(forwards, max_num_seqs * (std::ssize(drafts) + 1))) {
    costs.steps_per_second.push_back(1 / seconds);
  }
  for (const auto& points : drafts) costs.draft_seconds.push_back(latency_envelope(points, max_num_seqs));
  return costs;
}

}  // namespace folio
