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
// Inlined even without optimisation: see the top of this file.
[[gnu::always_inline]] constexpr int64_t packed_columns(int64_t in) {
  return (in + kPackColumns - 1) / kPackColumns * kPackColumns;
}

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
  int64_t out_stride;     // elements
  const std::byte* next;  // what the caller reads after this tile, to be fetched ahead; null = the rows behind it
  std::byte* scratch;     // gemm_scratch_bytes(in), 64-byte aligned
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

// The streams of one row: [streams, hidden], 1 <= streams <= kMaxStreams.
constexpr int kMaxStreams = 8;
struct CollapseArgs {  // out = bf(sum of mix[s] * x[s])
  const uint16_t* x;
  const float* mix;
  int64_t streams;
  int64_t hidden;
  uint16_t* out;
};
struct ExpandArgs {  // x[j] = bf(post[j] * y + sum of comb[i][j] * x[i])
  uint16_t* x;
  const uint16_t* y;
  const float* post;
  const float* comb;
  int64_t streams;
  int64_t hidden;
};

// One stream of Engram's injection (spec 8.4): x += bf(gate * value). Returns the gate, 0 for rows of an image.
struct InjectArgs {
  uint16_t* x;
  const uint16_t* key;
  const uint16_t* value;
  const float* q_weight;
  const float* k_weight;
  int64_t hidden;
  float eps;
  float dot_scale;
  bool image;
};

// Adjacent pairs of `heads` heads of one row, no fused products: the oracle's bits.
struct RotateRowArgs {
  uint16_t* x;  // the rotated part of head 0
  int64_t heads;
  int64_t head_stride;
  int64_t pairs;
  const float* rope;  // [pairs, 2] cosines and sines
  bool inverse;
};

// A channel-wise softmax over two gates and the weighted sum of the two values (spec 6.1).
struct PoolArgs {
  const float* kv0;
  const float* gate0;
  const float* kv1;
  const float* gate1;
  int64_t dim;
  uint16_t* out;
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
// out[i] = the score of key i, the sum over heads ascending in fp32. FP4 (spec 6.5): exact integer dots per 32 columns,
// scaled, then the three roundings. FP8 (spec runtime 6): fp32 dots along the dimension, no rounding to bf16.
struct IndexScoreArgs {
  const std::byte* query;
  int64_t heads;
  int64_t dim;
  const uint8_t* const* codes;   // [count] packed E2M1 or E4M3 of the keys
  const uint8_t* const* scales;  // [count] UE8M0
  int64_t count;
  void* out;  // [count] bf16 bits of an FP4 plane's scores, fp32 of an FP8 plane's
};

// The scorer of one plane format.
struct IndexKernels {
  int64_t (*query_bytes)(int64_t heads, int64_t dim);
  void (*query)(const IndexQueryArgs& args);
  void (*score)(const IndexScoreArgs& args);
};

struct PartSum {
  float top;
  float sum;
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

  float (*mean_square)(const uint16_t* x, int64_t n);
  void (*collapse)(const CollapseArgs& args);
  void (*expand)(const ExpandArgs& args);
  float (*inject)(const InjectArgs& args);
  void (*rotate)(const RotateRowArgs& args);
  void (*pool)(const PoolArgs& args);
  // y[i] = sqrt(softplus(z[i]))
  void (*affinity)(const float* z, int64_t n, float* y);
  // QDQ8 of finite values: codes [n] and scales [n/32], or the dequantised values.
  void (*quantize8)(const uint16_t* x, int64_t n, uint8_t* codes, uint8_t* scales);
  void (*round8)(const uint16_t* x, int64_t n, uint16_t* out);
  // E4M3 codes [n] with UE8M0 scales [n/32] in kMinScale .. kMaxScale, dequantised to bf16.
  void (*dequantize8)(const uint8_t* codes, const uint8_t* scales, int64_t n, uint16_t* out);
  // The largest of n logits and the sum of exp(logit - largest), NaN as -infinity.
  PartSum (*log_sum)(const float* logits, int64_t n);
  // out[i] = exp((logits[i] - top) * scale) for logits up to `top`; 1 where they are equal, 0 for NaN.
  void (*weights)(const float* logits, int64_t n, float top, float scale, float* out);

  bool reads_bf16_rows;  // cached bf16 rows are operands as they lie; others go through decode_row
  int64_t (*attend_scratch_bytes)(int64_t heads, int64_t dim);
  void (*decode_row)(RowFormat format, const uint8_t* codes, const uint8_t* scales, int64_t dim, void* out);
  void (*attend_begin)(const AttendArgsOfRow& args);
  // The next chunk of the list: n widened rows, 1 <= n <= kAttendChunk; rows[n] repeats rows[n - 1].
  void (*attend_chunk)(const AttendArgsOfRow& args, const void* const* rows, int64_t n);
  void (*attend_end)(const AttendArgsOfRow& args);

  // Probes (probe.h): reads a buffer of a multiple of 1 KiB; runs multiply-adds on registers and returns their number
  // of FLOPs for `rounds` rounds.
  uint64_t (*read_all)(const std::byte* data, int64_t bytes);
  int64_t (*multiply_add)(int64_t rounds);

  IndexKernels index_fp4;
  IndexKernels index_fp8;
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512bf16_kernels();

}  // namespace folio::cpu
