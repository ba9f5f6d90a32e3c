// The kernels of one instruction set as a table of functions over plain pointers: what runs on one thread, on one tile.
// Each ISA's translation unit (kernels_*.cpp) compiles the same kernel sources over its own vector type, in a namespace
// of its own, and calls no inline function of another header: such a function would be emitted with the wider
// instructions and might be the copy that the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cache_rows.h"

namespace folio::cpu {

// How a weight matrix [out, in] lies in memory.
enum class Format : int32_t {
  kBf16,  // bf16 [out, in]
  kFp8,   // E4M3 [out, in], UE8M0 per 32 x 32
  kFp4,   // packed E2M1 [out, in/2], UE8M0 per row and 32 columns
};

// Weight scales that the kernels fold into the decoded values: bf16 holds the product exactly, and no product of two
// operands leaves the normal range. Weights with any other scale go through exact_product.
constexpr int kMinScale = 64;
constexpr int kMaxScale = 190;

// Packed activations: rows of `packed_columns(in)` operands in the order in which the kernels decode a format, zeros
// behind the end.
constexpr int64_t kPackColumns = 128;
constexpr int64_t packed_columns(int64_t in) { return (in + kPackColumns - 1) / kPackColumns * kPackColumns; }

struct PackArgs {
  Format format;
  bool quantize;      // QDQ8 first (in must be a multiple of 32)
  const uint16_t* x;  // bf16 [in]
  int64_t in;
  std::byte* out;
};

// out[r, first .. first + count) = x[r] . W[first .. first + count), for packed rows x. fp32 sums: the lanes of one
// vector accumulator walk k in the order of the format's decoder, then one tree adds the lanes; so an output has the
// same bits whatever the other rows, outputs and tile sizes are.
struct GemmArgs {
  Format format;
  const std::byte* weights;  // of output 0
  const uint8_t* scales;     // of output 0
  int64_t scale_stride;      // bytes between scale rows
  int64_t in;
  int64_t first;  // multiple of 8
  int64_t count;
  const std::byte* x;
  int64_t x_stride;          // bytes
  const int32_t* row_index;  // row r is packed row row_index[r]; null = r
  int64_t rows;
  float* out_f32;  // exactly one of the two; (row 0, output `first`)
  uint16_t* out_bf16;
  int64_t out_stride;  // elements
  std::byte* scratch;  // gemm_scratch_bytes(in), 64-byte aligned
};

// out[r, first + i] = sum over k of fn[first + i, k] * x[r, k], i < count, fp32 weights; the sums as in GemmArgs.
struct MixArgs {
  const uint16_t* x;  // [rows, width]
  int64_t rows;
  int64_t width;
  const float* fn;  // [outputs, width]
  int64_t first;
  int64_t count;
  float* out;  // (row 0, output 0)
  int64_t out_stride;
};

struct NormArgs {
  const uint16_t* x;
  const float* weight;
  float eps;
  int64_t cols;
  uint16_t* out;
};

// v = bf(weight * silu(gate) * up) for `count` outputs of one row; gate and up are on the bf16 grid.
struct SwigluArgs {
  const uint16_t* gate;
  const uint16_t* up;
  float limit;
  float weight;
  int64_t count;
  uint16_t* out;
};

// One query and some of its heads. The list of rows comes in chunks between attend_begin and attend_end; what is in
// between lies in scratch.
constexpr int kAttendChunk = 64;
struct AttendArgsOfRow {
  const uint16_t* query;  // bf16 [heads, dim]
  int64_t heads;
  int64_t dim;  // multiple of 32
  float score_scale;
  const float* sink;   // [heads]
  uint16_t* out;       // bf16 [heads, dim]
  std::byte* scratch;  // attend_scratch_bytes(heads, dim), 64-byte aligned
};

constexpr int kIndexDims[] = {32, 64, 96, 128, 256};

// An index query in the kernels' form, in memory of index_query_bytes(heads, dim).
struct IndexQueryArgs {
  const uint16_t* query;         // bf16 [heads, dim], not yet quantised
  const uint16_t* head_weights;  // bf16 [heads]
  int64_t heads;
  int64_t dim;  // one of kIndexDims
  std::byte* out;
};
// out[i] = bf16 bits of the score of key i (spec 6.5): exact integer dots per 32 columns, scaled, then the three
// roundings; the sum over heads ascending in fp32.
struct IndexScoreArgs {
  const std::byte* query;
  int64_t heads;
  int64_t dim;
  const uint8_t* const* codes;   // [count] packed E2M1 of the keys
  const uint8_t* const* scales;  // [count] UE8M0
  int64_t count;
  uint16_t* out;
};

struct Kernels {
  int64_t operand_bytes;  // of a packed activation
  int64_t (*gemm_scratch_bytes)(int64_t in);
  void (*pack)(const PackArgs& args);
  // The inverse of pack's permutation: natural order, fp32.
  void (*unpack)(Format format, const std::byte* packed, int64_t in, float* out);
  void (*gemm)(const GemmArgs& args);
  void (*mix)(const MixArgs& args);
  void (*norm)(const NormArgs& args);
  void (*swiglu)(const SwigluArgs& args);
  // acc[i] += y[i], and out = bf(acc + y).
  void (*accumulate)(const uint16_t* y, int64_t n, float* acc);
  void (*accumulate_last)(const uint16_t* y, const float* acc, int64_t n, uint16_t* out);

  bool reads_bf16_rows;  // cached bf16 rows are operands as they lie; others go through decode_row
  int64_t (*attend_scratch_bytes)(int64_t heads, int64_t dim);
  void (*decode_row)(RowFormat format, const uint8_t* codes, const uint8_t* scales, int64_t dim, void* out);
  void (*attend_begin)(const AttendArgsOfRow& args);
  // The next chunk of the list: n widened rows, 1 <= n <= kAttendChunk; rows[n] repeats rows[n - 1].
  void (*attend_chunk)(const AttendArgsOfRow& args, const void* const* rows, int64_t n);
  void (*attend_end)(const AttendArgsOfRow& args);

  int64_t (*index_query_bytes)(int64_t heads, int64_t dim);
  void (*index_query)(const IndexQueryArgs& args);
  void (*index_score)(const IndexScoreArgs& args);
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512bf16_kernels();

}  // namespace folio::cpu
