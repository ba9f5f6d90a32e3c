// Cases for every op, shared by the tests of all backends: random inputs of the shapes of the presets and odd ones, run
// on any Ops over any choice of rows. A backend is held to the reference by check_close and to the row law by
// check_row_law. Test code only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace folio::op_cases {

// kDecision: follows from computed scores, so it may differ from the reference's; the case itself checks it.
enum class Kind { kBf16, kF32, kBytes, kDecision };

// One output of an op for the rows it ran on. The elements of a row lie together.
struct Output {
  std::string name;
  Kind kind = Kind::kBf16;
  std::vector<std::vector<std::byte>> rows;
  // Error that another order of sums may cause before the final rounding, per element of a row of the full run: the
  // bound on |difference| in fp32. Empty = every element may differ by a few fp32 ulps of itself only.
  std::vector<std::vector<float>> slack;
  // Share of elements that may be off by more (each a flip of an inner rounding that the case explains), and how large
  // the relative L2 difference of a row may then be.
  double flips = 0;
  double flip_l2 = 0;
};
using Outputs = std::vector<Output>;

// An op with its inputs: `rows` of them, any subset of which can be run in any order.
struct Case {
  std::string name;
  int32_t rows = 0;
  OpsLimits limits;
  // Prepares weights with `ops` (which has been reserved for `limits`) and returns what runs the op.
  std::function<std::function<Outputs(const std::vector<int32_t>& rows)>(Ops& ops)> prepare;
};

// All cases, small ones first; deterministic.
std::vector<Case> linear_cases();
std::vector<Case> row_cases();
std::vector<Case> expert_cases();
std::vector<Case> attention_cases();
std::vector<Case> index_cases();
std::vector<Case> sample_cases();
std::vector<Case> draft_cases();
std::vector<Case> all_cases();

// Largest of everything that the cases of a list ask for.
OpsLimits limits_of(const std::vector<Case>& cases);

// Empty when `actual` agrees with `expected`, else a description of the first difference that is too large.
std::string check_close(const Outputs& expected, const Outputs& actual);

// Runs `run` on the whole list of rows, on shuffled lists, on single rows and on subsets; empty when every row has the
// same bits each time, else a description of the first row that has not. `make_runs` gives runs that must all agree,
// such as one per number of threads.
std::string check_row_law(int32_t rows, const std::vector<std::function<Outputs(const std::vector<int32_t>&)>>& runs,
                          uint64_t seed);

// ---- building blocks of cases

// Owns tensors of a case.
class Data {
 public:
  explicit Data(uint64_t seed) : seed_(seed) {}

  float normal();
  uint32_t below(uint32_t n);

  // Activations: normal values of spread `scale`, a few of them 30 times larger, some zeros of both signs.
  std::vector<bf16> activations(int64_t count, float scale = 1.0f);
  std::vector<float> floats(int64_t count, float mean, float spread);

  // Weights in their published formats; scales around 2^`exponent`.
  WeightViews bf16_matrix(int64_t out, int64_t in, float spread);
  WeightViews f32_matrix(int64_t out, int64_t in, float spread);
  WeightViews vector(int64_t out, int64_t in, float mean, float spread);
  WeightViews fp8(int64_t out, int64_t in, int exponent = -10);
  WeightViews fp8_rows(int64_t out, int64_t in, int exponent = -8);
  WeightViews fp4(int64_t out, int64_t in, int exponent = -8);

  // The bytes behind a view of this object, to plant special values.
  std::byte* bytes(const TensorView& view) { return const_cast<std::byte*>(view.data); }

 private:
  TensorView add(DType dtype, Shape shape, std::vector<std::byte> bytes);

  uint64_t seed_;
  uint64_t draws_ = 0;
  std::vector<std::unique_ptr<std::vector<std::byte>>> tensors_;
};

// The chosen rows of `x`, `width` elements each, one after the other.
template <typename T>
std::vector<T> choose(const std::vector<T>& x, const std::vector<int32_t>& rows, int64_t width) {
  std::vector<T> y;
  for (int32_t r : rows) y.insert(y.end(), x.begin() + r * width, x.begin() + (r + 1) * width);
  return y;
}

// `values` cut into rows of `width` elements.
template <typename T>
Output output(std::string name, Kind kind, const std::vector<T>& values, int64_t width) {
  Output out{std::move(name), kind, {}, {}, 0, 0};
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const auto row = static_cast<size_t>(width) * sizeof(T);
  for (size_t at = 0; at + row <= values.size() * sizeof(T) && row > 0; at += row) {
    out.rows.emplace_back(bytes + at, bytes + at + row);
  }
  return out;
}

// 2^-24 * steps * sum |w x|: what an fp32 sum of `steps` dependent additions may be off by.
std::vector<std::vector<float>> product_slack(const std::vector<float>& weights, const std::vector<float>& x,
                                              int64_t rows, int64_t out, int64_t in);

}  // namespace folio::op_cases
