#include "comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "numerics/fp4.h"

namespace folio::golden {
namespace {

// The reference and the oracle differ where double sums in another order straddle a rounding to fp32, or where the C
// and the numpy library round an elementary function differently.
constexpr double kMostDifferentReference = 1e-6;
// Limits of the project's definition of done: 99.9 % of elements equal and the rest one bf16 ulp away, up to rare
// double flips; stored codes equal but for 0.5 % and one step off.
constexpr double kMostDifferent = 1e-3;
constexpr double kMostCodesDifferent = 5e-3;
// A sum whose terms cancel keeps the fp32 noise of the terms, which are as large as the row's large values: a few units
// of 2^-24 of them. On a value that is 2^-20 of them this is more than a bf16 ulp.
constexpr double kCancellationNoise = 0x1p-22;
// Double flips: values that are rounded more than once before the comparison. Those of `attend` are proved one by one
// (attend_flips.cpp). In `experts` w1 and w3 are rounded to bf16, their product to bf16 and then to E4M3: one flip may
// move an input of w2 by a code step of 1/16, and with it many sums of the row by an ulp or two.
constexpr double kMostDoubleFlips = 2e-4;
constexpr double kMostStepsOfExperts = 4;
// An op that is wrong everywhere needs no explanation of every element.
constexpr int64_t kMostExplanations = 10'000;
// fp32 results: sums of up to 4096 products in another order, in units of the row's largest value.
constexpr double kMostRelative = 2e-5;

// Integers that order bf16 values, the two zeros as one.
int ordinal(bf16 x) {
  const int magnitude = x.bits & 0x7fff;
  return (x.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kBf16:
      return "bf16";
    case Kind::kF32:
      return "f32";
    case Kind::kCodes:
      return "codes";
    case Kind::kExact:
      return "exact";
  }
  return "?";
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

template <typename T, typename Value>
double row_maximum(std::span<const T> row, const Value& value) {
  double largest = 0;
  for (const T x : row) largest = std::max(largest, std::fabs(static_cast<double>(value(x))));
  return largest;
}

std::string place(int layer, int64_t index) {
  return layer < 0 ? concat("element ", index) : concat("layer ", layer, ", element ", index);
}

}  // namespace

Finding& Recorder::at(const std::string& op, Kind kind, size_t got, size_t want) {
  FOLIO_CHECK(got == want, op, ": ", got, " elements instead of ", want);
  Finding& finding = findings_.try_emplace(op, Finding{.kind = kind, .where = {}}).first->second;
  FOLIO_CHECK(finding.kind == kind, op);
  finding.count += static_cast<int64_t>(want);
  return finding;
}

void Recorder::differ(Finding& finding, int layer, int64_t index) {
  if (finding.different++ == 0) finding.where = place(layer, index);
}

void Recorder::bf16_rows(const std::string& op, int layer, std::span<const bf16> got, std::span<const bf16> want,
                         int64_t width, const std::function<double(int64_t)>& flips) {
  Finding& finding = at(op, Kind::kBf16, got.size(), want.size());
  const auto columns = static_cast<size_t>(width);
  for (size_t row = 0; row < want.size(); row += columns) {
    double largest = -1;
    for (size_t i = row; i < row + columns; ++i) {
      const int steps = std::abs(ordinal(got[i]) - ordinal(want[i]));
      if (steps == 0) continue;
      if (largest < 0) largest = row_maximum(want.subspan(row, columns), [](bf16 x) { return to_float(x); });
      ++finding.different;
      const double error = std::fabs(static_cast<double>(to_float(got[i])) - static_cast<double>(to_float(want[i])));
      finding.worst_row = std::max(finding.worst_row, error / largest);
      if (steps > 1 && error <= kCancellationNoise * largest) {
        ++finding.cancelled;
        continue;
      }
      if (steps > 1 && flips && finding.flips + finding.beyond < kMostExplanations) {
        // What flips cannot have moved must be one step, or noise.
        const double one_step = std::fabs(static_cast<double>(to_float(want[i]))) * 0x1p-7;
        if (error <= flips(static_cast<int64_t>(i)) + std::max(one_step, kCancellationNoise * largest)) {
          ++finding.flips;
          continue;
        }
      }
      if (steps > 1) ++finding.beyond;
      if (steps > finding.worst) {
        finding.worst = steps;
        finding.where = place(layer, static_cast<int64_t>(i));
      }
    }
  }
}

void Recorder::f32_rows(const std::string& op, int layer, std::span<const float> got, std::span<const float> want,
                        int64_t width) {
  Finding& finding = at(op, Kind::kF32, got.size(), want.size());
  const auto columns = static_cast<size_t>(width);
  for (size_t row = 0; row < want.size(); row += columns) {
    const double largest = row_maximum(want.subspan(row, columns), [](float x) { return x; });
    for (size_t i = row; i < row + columns; ++i) {
      if (got[i] == want[i]) continue;
      ++finding.different;
      const double error = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])) / largest;
      // Also catches a NaN.
      if (!(error <= finding.worst)) {
        finding.worst = std::isnan(error) ? INFINITY : error;
        finding.where = place(layer, static_cast<int64_t>(i));
      }
    }
  }
}

void Recorder::codes(const std::string& op, int layer, std::span<const uint8_t> got, std::span<const uint8_t> want,
                     int (*step)(uint8_t)) {
  Finding& finding = at(op, Kind::kCodes, got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const int steps = std::abs(step(got[i]) - step(want[i]));
    if (steps == 0) continue;
    ++finding.different;
    if (steps > 1) ++finding.beyond;
    if (steps > finding.worst) {
      finding.worst = steps;
      finding.where = place(layer, static_cast<int64_t>(i));
    }
  }
}

void Recorder::check(bool reference) const {
  for (const auto& [op, finding] : findings_) {
    const double different = share(finding.different, finding.count);
    const std::string message = concat(op, ": ", finding.different, " of ", finding.count, " differ, ", finding.beyond,
                                       " by more than one step, the worst by ", finding.worst, " at ", finding.where);
    if (reference && finding.kind != Kind::kF32) {
      EXPECT_LE(different, kMostDifferentReference) << message;
    }
    switch (finding.kind) {
      case Kind::kBf16:
        EXPECT_LE(different, kMostDifferent) << message;
        EXPECT_LE(share(finding.flips, finding.count), kMostDoubleFlips) << message;
        EXPECT_LE(share(finding.beyond, finding.count), op.starts_with("expert") ? kMostDoubleFlips : 0) << message;
        EXPECT_LE(finding.worst, op.starts_with("expert") ? kMostStepsOfExperts : 1) << message;
        break;
      case Kind::kF32:
        EXPECT_LE(finding.worst, kMostRelative) << message;
        break;
      case Kind::kCodes:
        EXPECT_LE(different, kMostCodesDifferent) << message;
        EXPECT_LE(finding.worst, 1) << message;
        break;
      case Kind::kExact:
        EXPECT_EQ(finding.different, 0) << message;
        break;
    }
  }
}

int e4m3_step(uint8_t code) { return (code & 0x80) != 0 ? -(code & 0x7f) : code & 0x7f; }
int e2m1_step(uint8_t code) { return (code & 8) != 0 ? -(code & 7) : code & 7; }
int e8m0_step(uint8_t code) { return code; }

std::vector<uint8_t> unpack_fp4(std::span<const uint8_t> packed) {
  std::vector<uint8_t> codes(2 * packed.size());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = fp4_code(packed.data(), static_cast<int64_t>(i));
  return codes;
}

void Report::add(const std::string& golden_case, const std::string& backend, const Recorder& recorder) {
  for (const auto& [op, finding] : recorder.findings()) {
    entries_.push_back({.golden_case = golden_case, .backend = backend, .op = op, .finding = finding});
  }
}

void Report::print() const {
  // Over all cases of a backend: the totals, and the worst of the worst.
  std::vector<std::string> backends;
  std::map<std::string, std::map<std::string, Finding>> table;  // op, backend
  for (const Entry& entry : entries_) {
    if (std::find(backends.begin(), backends.end(), entry.backend) == backends.end()) {
      backends.push_back(entry.backend);
    }
    Finding& sum =
        table[entry.op].try_emplace(entry.backend, Finding{.kind = entry.finding.kind, .where = {}}).first->second;
    sum.count += entry.finding.count;
    sum.different += entry.finding.different;
    sum.cancelled += entry.finding.cancelled;
    sum.flips += entry.finding.flips;
    sum.beyond += entry.finding.beyond;
    sum.worst = std::max(sum.worst, entry.finding.worst);
    sum.worst_row = std::max(sum.worst_row, entry.finding.worst_row);
  }
  std::string head = "| op | elements |", rule = "|---|---|";
  for (const std::string& backend : backends) {
    head += " " + backend + " |";
    rule += "---|";
  }
  std::printf("\n%s\n%s\n", head.c_str(), rule.c_str());
  for (const auto& [op, row] : table) {
    std::printf("| %s | %lld |", op.c_str(), static_cast<long long>(row.begin()->second.count));
    for (const std::string& backend : backends) {
      const auto found = row.find(backend);
      if (found == row.end()) {
        std::printf(" - |");
        continue;
      }
      const Finding& finding = found->second;
      if (finding.different == 0) {
        std::printf(" equal |");
      } else if (finding.kind == Kind::kF32) {
        std::printf(" %.1e |", finding.worst);
      } else {
        std::printf(" %lld", static_cast<long long>(finding.different));
        if (finding.cancelled > 0) std::printf(", %lld cancelled", static_cast<long long>(finding.cancelled));
        if (finding.flips > 0) std::printf(", %lld double flips", static_cast<long long>(finding.flips));
        if (finding.beyond > 0) {
          std::printf(", %lld by up to %g steps", static_cast<long long>(finding.beyond), finding.worst);
        }
        std::printf(" |");
      }
    }
    std::printf("\n");
  }
  std::printf(
      "\nA cell counts the elements that differ, by one step unless it says more; of fp32 results it names the largest "
      "difference over the row's largest value.\n");
}

void Report::write_json(const std::string& path) const {
  nlohmann::json list = nlohmann::json::array();
  for (const Entry& entry : entries_) {
    const Finding& finding = entry.finding;
    list.push_back({{"case", entry.golden_case},
                    {"backend", entry.backend},
                    {"op", entry.op},
                    {"kind", kind_name(finding.kind)},
                    {"elements", finding.count},
                    {"different", finding.different},
                    {"cancelled", finding.cancelled},
                    {"double_flips", finding.flips},
                    {"beyond_one_step", finding.beyond},
                    {"worst", finding.worst},
                    {"worst_of_row_maximum", finding.worst_row},
                    {"where", finding.where}});
  }
  std::ofstream(path) << list.dump(1) << '\n';
}

}  // namespace folio::golden
