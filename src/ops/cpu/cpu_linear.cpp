// Linears and norms. A linear first packs its rows once (rounded where the op says so), then threads take tiles of
// outputs. One row moves the weight's published bytes and little else: bound by memory bandwidth.
#include <algorithm>

#include "base/error.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"
#include "ops/cpu/cpu_ops.h"

namespace folio::cpu {
namespace {

constexpr int64_t kTileOutputs = 32;  // a multiple of the FP8 tile: scales are per 32 outputs

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Outputs of one task: about eight tasks for every thread, so that a late thread holds up little.
int64_t outputs_per_task(int64_t out, int threads) {
  return std::clamp(round_up(out / (8 * threads), kTileOutputs), kTileOutputs, 8 * kTileOutputs);
}

}  // namespace

// Row r is x + r * x_stride, packed to out + r * out_stride.
void CpuOps::pack_rows(const PackArgs& first, int64_t x_stride, int64_t out_stride, int64_t rows) {
  const int64_t grain = std::max<int64_t>(1, kSerialElements / first.in);
  pool_.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    PackArgs row = first;
    for (int64_t r = begin; r < end; ++r) {
      row.x = first.x + r * x_stride;
      row.out = first.out + r * out_stride;
      kernels_.pack(row);
    }
  });
}

void CpuOps::tile(const Matrix& matrix, int64_t first, int64_t count, const PackedRows& x, const TileOutput& out,
                  const ThreadScratch& scratch, const std::byte* next) const {
  if (matrix.exact) return exact_product(matrix, first, count, x, out, scratch.exact);
  GemmArgs args{};
  args.format = matrix.format;
  args.weights = matrix.weights;
  args.scales = matrix.scales;
  args.scale_stride = matrix.scale_stride;
  args.in = matrix.in;
  args.first = first;
  args.count = count;
  args.x = x.data;
  args.x_stride = x.stride;
  args.row_index = x.index;
  args.rows = x.rows;
  args.out_f32 = out.f32;
  args.out_bf16 = out.bits;
  args.out_stride = out.stride;
  args.next = next;
  args.scratch = scratch.gemm;
  kernels_.gemm(args);
}

// Any scale there is: products in double, which holds each of them, summed ascending.
void CpuOps::exact_product(const Matrix& matrix, int64_t first, int64_t count, const PackedRows& x,
                           const TileOutput& out, float* scratch) const {
  const int64_t in = matrix.in;
  float *a = scratch, *w = scratch + in;
  const auto* codes = reinterpret_cast<const uint8_t*>(matrix.weights);
  for (int64_t o = first; o < first + count; ++o) {
    if (matrix.format == Format::kFp4) {
      dequantize_fp4_row({codes, matrix.scales}, o, in, w);
    } else {
      for (int64_t i = 0; i < in; ++i) {
        w[i] = e4m3_decode(codes[o * in + i]) * e8m0_decode(matrix.scales[o / 32 * matrix.scale_stride + i / 32]);
      }
    }
    for (int64_t r = 0; r < x.rows; ++r) {
      kernels_.unpack(matrix.format, x.data + (x.index != nullptr ? x.index[r] : r) * x.stride, in, a);
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(w[i]);
      const auto y = static_cast<float>(sum);
      const int64_t at = r * out.stride + o - first;
      if (out.bits != nullptr) {
        out.bits[at] = to_bf16(y).bits;
      } else {
        out.f32[at] = y;
      }
    }
  }
}

void CpuOps::matrix_product(const LinearArgs& args, bool quantize) {
  FOLIO_CHECK((args.out == nullptr) != (args.out_f32 == nullptr));
  const Matrix& matrix = matrix_of(args.weight);
  FOLIO_CHECK(!quantize || matrix.in % 32 == 0, matrix.in);
  const int64_t stride = packed_stride(matrix.in), out = matrix.out;
  const int64_t block = std::min(kLinearRows, scratch_.packed_bytes / stride);
  FOLIO_CHECK(block > 0, "reserve() was called for narrower inputs than ", matrix.in);
  const int64_t outputs = outputs_per_task(out, pool_.threads());
  for (int64_t r0 = 0; r0 < args.rows; r0 += block) {
    const PackedRows x{scratch_.packed, stride, nullptr, std::min(block, args.rows - r0)};
    pack_rows({matrix.format, quantize, bits_of(args.x) + r0 * matrix.in, matrix.in, scratch_.packed}, matrix.in,
              stride, x.rows);
    pool_.parallel_tasks((out + outputs - 1) / outputs, [&](int64_t task, int thread) {
      const int64_t first = task * outputs;
      const TileOutput y{args.out_f32 != nullptr ? args.out_f32 + r0 * out + first : nullptr,
                         args.out != nullptr ? bits_of(args.out) + r0 * out + first : nullptr, out};
      tile(matrix, first, std::min(outputs, out - first), x, y, scratch_.threads[static_cast<size_t>(thread)]);
    });
  }
}

void CpuOps::quantized_linear(const LinearArgs& args) {
  FOLIO_CHECK(args.weight->kind() == WeightKind::kFp8);
  matrix_product(args, true);
}

void CpuOps::linear(const LinearArgs& args) {
  FOLIO_CHECK(args.weight->kind() == WeightKind::kBf16);
  matrix_product(args, false);
}

void CpuOps::grouped_linear(const GroupedLinearArgs& args) {
  const Matrix& whole = matrix_of(args.weight);
  FOLIO_CHECK(whole.format == Format::kFp8 && whole.out % args.groups == 0);
  const int64_t in = whole.in, rank = whole.out / args.groups;
  Matrix matrix = whole;
  matrix.exact |= rank % 8 != 0;  // kernels start at multiples of 8 outputs
  const int64_t part = packed_stride(in), stride = args.groups * part;
  const int64_t block = std::min(kLinearRows, scratch_.packed_bytes / stride);
  FOLIO_CHECK(block > 0, "reserve() was called for fewer heads");
  const int64_t outputs = std::min(round_up(rank, 8), outputs_per_task(whole.out, pool_.threads()));
  const int64_t tiles = (rank + outputs - 1) / outputs;
  for (int64_t r0 = 0; r0 < args.rows; r0 += block) {
    const int64_t rows = std::min(block, args.rows - r0);
    // Every group of every row is a packed row: they follow each other in both places.
    pack_rows({Format::kFp8, false, bits_of(args.x) + r0 * args.groups * in, in, scratch_.packed}, in, part,
              rows * args.groups);
    pool_.parallel_tasks(args.groups * tiles, [&](int64_t task, int thread) {
      const int64_t group = task / tiles, first = group * rank + task % tiles * outputs;
      const PackedRows x{scratch_.packed + group * part, stride, nullptr, rows};
      const TileOutput y{nullptr, bits_of(args.out) + r0 * whole.out + first, whole.out};
      tile(matrix, first, std::min(outputs, (group + 1) * rank - first), x, y,
           scratch_.threads[static_cast<size_t>(thread)]);
    });
  }
}

void CpuOps::rms_norm(const RmsNormArgs& args) {
  const float* weight = host(args.weight).floats;
  const int64_t grain = std::max<int64_t>(1, kSerialElements / args.cols);
  pool_.parallel_for(args.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.norm({bits_of(args.x) + r * args.cols, weight, args.eps, args.cols, bits_of(args.out) + r * args.cols});
    }
  });
}

}  // namespace folio::cpu
