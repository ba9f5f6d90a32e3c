// What comparing an op's output with the oracle's has found, op by op, and the limits that it is held to.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "numerics/bf16.h"

namespace folio::golden {

enum class Kind {
  kBf16,   // activations: equal, or neighbours on the bf16 grid
  kF32,    // fp32 results that are not rounded to bf16
  kCodes,  // stored codes and scales: equal, or one step apart
  kExact,  // integers, decisions, and bytes that no sum precedes
};

struct Finding {
  Kind kind = Kind::kExact;
  int64_t count = 0;
  int64_t different = 0;
  // kBf16: of these, more than one step apart and explained: fp32 noise of large terms that cancel; a rounding inside
  // the op that is near a tie and fell to the other side (a double flip).
  int64_t cancelled = 0;
  int64_t flips = 0;
  int64_t beyond = 0;    // kBf16, kCodes: more than one step apart, and not explained
  double worst = 0;      // kBf16, kCodes: steps, without those that are explained; kF32: |difference| / row's largest
  double worst_row = 0;  // kBf16: |difference| / row's largest magnitude
  std::string where;     // of the worst, or of the first difference when exact
};

// Collects the findings of one case and backend.
class Recorder {
 public:
  // `layer` is named in messages; -1 for none. Elements come in rows of `width`.
  // `flips`, if given, is asked about elements that are more than one step away: by how much roundings inside the op
  // that are near a tie can have moved element `index`.
  void bf16_rows(const std::string& op, int layer, std::span<const bf16> got, std::span<const bf16> want, int64_t width,
                 const std::function<double(int64_t index)>& flips = nullptr);
  void f32_rows(const std::string& op, int layer, std::span<const float> got, std::span<const float> want,
                int64_t width);
  // Codes of one byte each; `step` orders them by value.
  void codes(const std::string& op, int layer, std::span<const uint8_t> got, std::span<const uint8_t> want,
             int (*step)(uint8_t));
  // T is an integer type or bf16 bits.
  template <typename T>
  void exact(const std::string& op, int layer, std::span<const T> got, std::span<const T> want) {
    Finding& finding = at(op, Kind::kExact, got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (got[i] != want[i]) differ(finding, layer, static_cast<int64_t>(i));
    }
  }

  // Expectations of GoogleTest on everything collected so far. `reference`: for the reference backend, which sums as
  // the oracle does.
  void check(bool reference) const;
  const std::map<std::string, Finding>& findings() const { return findings_; }

 private:
  Finding& at(const std::string& op, Kind kind, size_t got, size_t want);
  static void differ(Finding& finding, int layer, int64_t index);

  std::map<std::string, Finding> findings_;
};

// Places on the number line, for Recorder::codes.
int e4m3_step(uint8_t code);
int e2m1_step(uint8_t code);
int e8m0_step(uint8_t code);
// The two codes of each byte, one in a byte.
std::vector<uint8_t> unpack_fp4(std::span<const uint8_t> packed);

// All findings by case and backend: the worst figures of each op as a Markdown table on stdout, everything as JSON.
class Report {
 public:
  void add(const std::string& golden_case, const std::string& backend, const Recorder& recorder);
  void print() const;
  void write_json(const std::string& path) const;

 private:
  struct Entry {
    std::string golden_case, backend, op;
    Finding finding;
  };
  std::vector<Entry> entries_;
};

}  // namespace folio::golden
