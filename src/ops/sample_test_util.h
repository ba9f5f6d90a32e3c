// What a row of sampling must give, computed naively, and whether draws look like it. Test code only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "ops/sample.h"

namespace folio {

// One row's inputs in a form for tests.
struct SampleRow {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<LogitDelta> biases, penalties;
  std::vector<int32_t> banned;  // not in the mask
  std::vector<int32_t> seen;
  float repetition_penalty = 1;
  int32_t top = 0;

  int64_t vocab() const { return std::ssize(logits); }
};

// Sorts, in double, nothing clever.
inline std::vector<double> adjusted(const SampleRow& row) {
  std::vector<double> z(row.logits.begin(), row.logits.end());
  for (const int32_t id : row.banned) z[static_cast<size_t>(id)] = -std::numeric_limits<double>::infinity();
  for (const LogitDelta& d : row.biases) z[static_cast<size_t>(d.id)] += static_cast<double>(d.delta);
  for (const int32_t id : row.seen) {
    double& logit = z[static_cast<size_t>(id)];
    const auto r = static_cast<double>(row.repetition_penalty);
    logit = logit > 0 ? logit / r : logit * r;
  }
  for (const LogitDelta& d : row.penalties) z[static_cast<size_t>(d.id)] += static_cast<double>(d.delta);
  return z;
}

inline std::vector<size_t> by_likelihood(const std::vector<double>& z) {
  std::vector<size_t> order(z.size());
  for (size_t i = 0; i < z.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] != z[b] ? z[a] > z[b] : a < b; });
  return order;
}

// Probabilities from which the row is drawn.
inline std::vector<double> distribution(const SampleRow& row) {
  const std::vector<double> z = adjusted(row);
  const std::vector<size_t> order = by_likelihood(z);
  std::vector<double> p(z.size(), 0.0);
  if (row.params.temperature < kGreedyTemperature) {
    p[order[0]] = 1;
    return p;
  }
  std::vector<size_t> kept;
  double mass = 0;
  for (const size_t id : order) {
    const double weight = std::exp((z[id] - z[order[0]]) / static_cast<double>(row.params.temperature));
    if (weight < static_cast<double>(row.params.min_p)) break;
    if (row.params.top_k > 0 && kept.size() == static_cast<size_t>(row.params.top_k)) break;
    p[id] = weight;
    mass += weight;
    kept.push_back(id);
  }
  double left = 0;
  for (const size_t id : kept) {
    const bool reached = left >= static_cast<double>(row.params.top_p) * mass;
    left += p[id];
    if (reached && row.params.top_p < 1) p[id] = 0;
  }
  double total = 0;
  for (const double x : p) total += x;
  for (double& x : p) x /= total;
  return p;
}

inline SampleRow random_row(uint64_t seed, int64_t vocab, float spread) {
  SampleRow row;
  for (int64_t i = 0; i < vocab; ++i) {
    row.logits.push_back(spread * static_cast<float>(random_normal(seed, 3, static_cast<uint64_t>(i))));
  }
  row.params.seed = seed;
  return row;
}

// Chi-square of counts against a distribution over their cells, and its 99.99 % quantile (Wilson and Hilferty). Cells
// that are expected less than five times count as one. A count in a cell of probability 0 is infinitely far off.
struct ChiSquare {
  double value = 0, bound = 0;

  ChiSquare(const std::vector<int64_t>& counts, const std::vector<double>& p, int64_t draws) {
    double rest_expected = 0;
    int64_t rest = 0, cells = 0;
    const auto add = [&](int64_t count, double expected) {
      value += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) / expected;
      ++cells;
    };
    for (size_t cell = 0; cell < p.size(); ++cell) {
      const double expected = p[cell] * static_cast<double>(draws);
      if (p[cell] <= 0) {
        if (counts[cell] > 0) value = std::numeric_limits<double>::infinity();
      } else if (expected >= 5) {
        add(counts[cell], expected);
      } else {
        rest += counts[cell];
        rest_expected += expected;
      }
    }
    if (rest_expected >= 5) add(rest, rest_expected);
    const auto degrees = static_cast<double>(std::max<int64_t>(1, cells - 1));
    const double t = 2.0 / (9 * degrees), root = 1 - t + 3.72 * std::sqrt(t);
    bound = degrees * root * root * root;
  }
};

}  // namespace folio
