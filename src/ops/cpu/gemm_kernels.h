// Matrix products over packed activations, for the ISA namespace FOLIO_ISA (see kernels.h).
//
// Every (row, output) has one vector accumulator that takes the operands of a chunk in order, chunk by chunk, then the
// tree of sum_group. Few rows: weights are widened in registers and used at once, so a step moves the published bytes
// and nothing else. Many rows: kPanel outputs are widened once into scratch and meet all rows, kRows at a time, with
// kRows * kGroup accumulators in registers (24 products for 3 + 8 loads with AVX-512). Both do the same operations on
// an accumulator, so they agree bit for bit.
//
// Measured on two Zen 5 cores (g++ 12): one row reads 75 to 95 % of what a plain read of the same memory reaches; six
// rows run at 80 % of the vdpbf16ps peak, 512 rows at 80 to 84 %, or 67 % where rows have 384 columns and the trees
// weigh more. On AVX2 one row of bf16 is bound by memory and one of FP8 or FP4 by the widening; 512 rows run at 81 to
// 90 % of the FMA peak.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"

namespace folio::cpu::FOLIO_ISA {

constexpr int kRows = 3;
constexpr int64_t kDirectRows = 6;          // more rows than this share a widened panel
constexpr int64_t kPanel = 32;              // outputs
constexpr int64_t kPanelBytes = 512 << 10;  // of a wide panel: fewer outputs, so that it stays in the L2 cache
constexpr int64_t kRowBlockBytes = 256 << 10;
constexpr int64_t kSplitColumns = 2048;  // rows longer than this are walked in parts of kPartColumns
constexpr int64_t kPartColumns = 1024;
constexpr int64_t kPrefetchGroups = 2;  // groups of outputs ahead

constexpr int64_t panel_outputs(int64_t in, int64_t elem_bytes) {
  int64_t outputs = kPanel;
  while (outputs > kGroup && outputs * packed_columns(in) * elem_bytes > kPanelBytes) outputs -= kGroup;
  return outputs;
}
constexpr int64_t row_block(int64_t in, int64_t elem_bytes) {
  const int64_t columns = packed_columns(in) > kSplitColumns ? kPartColumns : packed_columns(in);
  const int64_t rows = kRowBlockBytes / (columns * elem_bytes) / kRows * kRows;
  return rows < 24 ? 24 : rows > 252 ? 252 : rows;
}

// The rows of a group of outputs; outputs past the end repeat the last one and are not stored.
template <class D>
struct WeightGroup {
  const uint8_t* codes[kGroup];
  const uint8_t* scales[kGroup];
  int64_t ahead;  // bytes from a row of this group to what is read two groups later

  WeightGroup(const GemmArgs& args, int64_t output) {
    const int64_t last = args.first + args.count - 1;
    for (int n = 0; n < kGroup; ++n) {
      const int64_t o = output + n < last ? output + n : last;
      codes[n] = reinterpret_cast<const uint8_t*>(args.weights) + o * D::row_bytes(args.in);
      scales[n] = args.scales + (args.format == Format::kFp8 ? o / 32 : o) * args.scale_stride;
    }
    if constexpr (!D::kSharedScale) {
      for (int n = 0; n < kGroup; ++n) __builtin_prefetch(scales[n] + kPrefetchGroups * kGroup * args.scale_stride);
    }
    const int64_t later = output + kPrefetchGroups * kGroup, end = args.first + args.count;
    ahead = (later - output) * D::row_bytes(args.in);
    if (later >= end && args.next != nullptr) {
      ahead = reinterpret_cast<const uint8_t*>(args.next) + (later - end) * D::row_bytes(args.in) - codes[0];
    }
  }

  // The last, partial chunk of output n.
  [[gnu::noinline]] void decode_tail(int n, int64_t in, typename D::Operand (&w)[D::kVecs]) const {
    alignas(64) uint8_t tail[D::kChunkBytes] = {};
    uint8_t tail_scales[4] = {kMinScale, kMinScale, kMinScale, kMinScale};
    const int64_t chunk = in / D::kChunk;
    const int64_t left = in - chunk * D::kChunk;
    __builtin_memcpy(tail, codes[n] + chunk * D::kChunkBytes, static_cast<size_t>(D::row_bytes(left)));
    if (scales[n] != nullptr) {
      __builtin_memcpy(tail_scales, scales[n] + chunk * D::kChunk / 32, static_cast<size_t>((left + 31) / 32));
    }
    D::decode(tail, D::scale(tail_scales, 0), w);
  }
};

template <class D>
inline const typename D::Elem* packed_row(const GemmArgs& args, int64_t r) {
  const int64_t row = args.row_index != nullptr ? args.row_index[r] : r;
  return reinterpret_cast<const typename D::Elem*>(args.x + row * args.x_stride);
}

inline void store_sums(const GemmArgs& args, int64_t r, int64_t output, const F (&acc)[kGroup]) {
  const int64_t left = args.first + args.count - output;
  const int64_t n = left < kGroup ? left : kGroup;
  const int64_t at = r * args.out_stride + output - args.first;
  if (args.out_bf16 != nullptr) {
    store_group_bf16(args.out_bf16 + at, sum_group(acc), n);
  } else {
    store_group(args.out_f32 + at, sum_group(acc), n);
  }
}

// ---- few rows

// Outputs [begin, begin + N) of a group. N * R accumulators in registers; x comes from the L1 cache.
template <class D, int R, int N>
inline void direct_part(const GemmArgs& args, const WeightGroup<D>& group, const typename D::Elem* const (&x)[R],
                        int begin, F (&acc)[R][N]) {
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) acc[r][n] = zero();
  }
  const int64_t chunks = args.in / D::kChunk;
  const int64_t ahead = group.ahead;
  for (int64_t c = 0; c < chunks; ++c) {
    typename D::Scale scale = D::scale(group.scales[begin], c);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const uint8_t* codes = group.codes[begin + n] + c * D::kChunkBytes;
      __builtin_prefetch(codes + ahead);
      if constexpr (!D::kSharedScale) {
        if (n > 0) scale = D::scale(group.scales[begin + n], c);
      }
      typename D::Operand w[D::kVecs];
      D::decode(codes, scale, w);
#pragma GCC unroll 4
      for (int v = 0; v < D::kVecs; ++v) {
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          acc[r][n] = D::dot(acc[r][n], w[v], D::load(x[r] + c * D::kChunk + v * D::kElems));
        }
      }
    }
  }
  if (args.in % D::kChunk == 0) return;
  // Unrolled like the loop above: an accumulator with a variable index would live in memory.
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    typename D::Operand w[D::kVecs];
    group.decode_tail(begin + n, args.in, w);
#pragma GCC unroll 4
    for (int v = 0; v < D::kVecs; ++v) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        acc[r][n] = D::dot(acc[r][n], w[v], D::load(x[r] + chunks * D::kChunk + v * D::kElems));
      }
    }
  }
}

template <class D, int R>
inline void direct_rows(const GemmArgs& args) {
  constexpr int kOutputs = R <= 2 ? kGroup : R <= 4 ? kGroup / 2 : kGroup / 4;  // what the registers hold
  const typename D::Elem* x[R];
  for (int r = 0; r < R; ++r) x[r] = packed_row<D>(args, r);
  for (int64_t output = args.first; output < args.first + args.count; output += kGroup) {
    const WeightGroup<D> group(args, output);
    F acc[R][kGroup];
    for (int begin = 0; begin < kGroup; begin += kOutputs) {
      F part[R][kOutputs];
      direct_part<D, R, kOutputs>(args, group, x, begin, part);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < kOutputs; ++n) acc[r][begin + n] = part[r][n];
      }
    }
    for (int r = 0; r < R; ++r) store_sums(args, r, output, acc[r]);
  }
}

template <class D>
inline void direct(const GemmArgs& args) {
  switch (args.rows) {
    case 1:
      return direct_rows<D, 1>(args);
    case 2:
      return direct_rows<D, 2>(args);
    case 3:
      return direct_rows<D, 3>(args);
    case 4:
      return direct_rows<D, 4>(args);
    case 5:
      return direct_rows<D, 5>(args);
    case 6:
      return direct_rows<D, 6>(args);
    default:
      return;
  }
}

// ---- many rows

// One group of outputs into a panel: [vector of k][output][element].
template <class D>
inline void widen_group(const GemmArgs& args, int64_t output, typename D::Elem* panel) {
  const WeightGroup<D> group(args, output);
  const int64_t chunks = args.in / D::kChunk;
  constexpr int64_t kVecStride = kGroup * D::kElems;
  typename D::Operand w[D::kVecs];
  for (int64_t c = 0; c < chunks; ++c, panel += D::kVecs * kVecStride) {
    typename D::Scale scale = D::scale(group.scales[0], c);
#pragma GCC unroll 8
    for (int n = 0; n < kGroup; ++n) {
      if constexpr (!D::kSharedScale) {
        if (n > 0) scale = D::scale(group.scales[n], c);
      }
      D::decode(group.codes[n] + c * D::kChunkBytes, scale, w);
      for (int v = 0; v < D::kVecs; ++v) D::store(panel + v * kVecStride + n * D::kElems, w[v]);
    }
  }
  if (args.in % D::kChunk == 0) return;
  for (int n = 0; n < kGroup; ++n) {
    group.decode_tail(n, args.in, w);
    for (int v = 0; v < D::kVecs; ++v) D::store(panel + v * kVecStride + n * D::kElems, w[v]);
  }
}

// Vectors [begin, end) of k of R rows against one group of the panel. `partial` holds the accumulators between parts.
template <class D, int R>
inline void panel_part(const typename D::Elem* panel, const typename D::Elem* const (&x)[R], int64_t begin, int64_t end,
                       const float* partial_in, float* partial_out, F (&acc)[R][kGroup]) {
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < kGroup; ++n) {
      acc[r][n] = partial_in != nullptr ? load(partial_in + (r * kGroup + n) * kLanes) : zero();
    }
  }
  const typename D::Elem* w = panel + begin * kGroup * D::kElems;
  for (int64_t v = begin; v < end; ++v, w += kGroup * D::kElems) {
    typename D::Operand a[R];
    for (int r = 0; r < R; ++r) a[r] = D::load(x[r] + v * D::kElems);
#pragma GCC unroll 8
    for (int n = 0; n < kGroup; ++n) {
      const typename D::Operand b = D::load(w + n * D::kElems);
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) acc[r][n] = D::dot(acc[r][n], b, a[r]);
    }
  }
  if (partial_out != nullptr) {
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < kGroup; ++n) store(partial_out + (r * kGroup + n) * kLanes, acc[r][n]);
    }
  }
}

struct PanelSpan {
  int64_t output, groups;  // first output, groups of outputs
  int64_t row, rows;
  int64_t begin, end, vecs;  // vectors of k: this part, all
};

template <class D, int R>
inline void panel_rows(const GemmArgs& args, const PanelSpan& span, int64_t group, int64_t row,
                       const typename D::Elem* panel, float* partial) {
  const typename D::Elem* x[R];
  for (int r = 0; r < R; ++r) x[r] = packed_row<D>(args, row + r);
  F acc[R][kGroup];
  panel_part<D, R>(panel + group * span.vecs * kGroup * D::kElems, x, span.begin, span.end,
                   span.begin > 0 ? partial : nullptr, span.end < span.vecs ? partial : nullptr, acc);
  if (span.end < span.vecs) return;
  for (int r = 0; r < R; ++r) store_sums(args, row + r, span.output + group * kGroup, acc[r]);
}

template <class D>
inline void panel_block(const GemmArgs& args, const PanelSpan& span, const typename D::Elem* panel, float* partials) {
  const int64_t sets = (span.rows + kRows - 1) / kRows;
  for (int64_t group = 0; group < span.groups; ++group) {
    for (int64_t set = 0; set < sets; ++set) {
      const int64_t row = span.row + set * kRows;
      const int64_t left = span.row + span.rows - row;
      float* partial = partials + (group * sets + set) * kRows * kGroup * kLanes;
      if (left >= 3) {
        panel_rows<D, 3>(args, span, group, row, panel, partial);
      } else if (left == 2) {
        panel_rows<D, 2>(args, span, group, row, panel, partial);
      } else {
        panel_rows<D, 1>(args, span, group, row, panel, partial);
      }
    }
  }
}

template <class D>
inline void panelled(const GemmArgs& args) {
  constexpr int64_t kElemBytes = sizeof(typename D::Elem);
  auto* panel = reinterpret_cast<typename D::Elem*>(args.scratch);
  const int64_t outputs = panel_outputs(args.in, kElemBytes);
  auto* partials = reinterpret_cast<float*>(args.scratch + outputs * packed_columns(args.in) * kElemBytes);
  const int64_t vecs = (args.in + D::kChunk - 1) / D::kChunk * D::kVecs;
  const int64_t part = vecs * D::kElems > kSplitColumns ? kPartColumns / D::kElems : vecs;
  const int64_t block = row_block(args.in, kElemBytes);
  const int64_t end = args.first + args.count;
  for (int64_t output = args.first; output < end; output += outputs) {
    const int64_t left = end - output;
    const int64_t groups = ((left < outputs ? left : outputs) + kGroup - 1) / kGroup;
    for (int64_t g = 0; g < groups; ++g) {
      widen_group<D>(args, output + g * kGroup, panel + g * vecs * kGroup * D::kElems);
    }
    for (int64_t row = 0; row < args.rows; row += block) {
      const int64_t rows = args.rows - row < block ? args.rows - row : block;
      for (int64_t begin = 0; begin < vecs; begin += part) {
        const int64_t stop = begin + part < vecs ? begin + part : vecs;
        panel_block<D>(args, {output, groups, row, rows, begin, stop, vecs}, panel, partials);
      }
    }
  }
}

template <class D>
inline void gemm_format(const GemmArgs& args) {
  if (args.rows <= kDirectRows) {
    direct<D>(args);
  } else {
    panelled<D>(args);
  }
}

inline void gemm(const GemmArgs& args) {
  switch (args.format) {
    case Format::kBf16:
      return gemm_format<DecodeBf16>(args);
    case Format::kFp8:
      return gemm_format<DecodeFp8>(args);
    case Format::kFp4:
      return gemm_format<DecodeFp4>(args);
  }
}

// ---- scratch

constexpr int64_t scratch_bytes_for(int64_t in, int64_t elem_bytes) {
  const int64_t outputs = panel_outputs(in, elem_bytes);
  const bool split = packed_columns(in) > kSplitColumns;
  const int64_t partials = split ? outputs * row_block(in, elem_bytes) * kLanes * int64_t{sizeof(float)} : 0;
  return outputs * packed_columns(in) * elem_bytes + partials;
}
// Enough for narrower inputs as well.
inline int64_t gemm_scratch_bytes(int64_t in) {
  int64_t most = 0;
  for (int64_t columns = kPackColumns; columns <= packed_columns(in); columns += kPackColumns) {
    const int64_t bytes = scratch_bytes_for(columns, sizeof(DecodeBf16::Elem));
    most = bytes > most ? bytes : most;
  }
  return most;
}

}  // namespace folio::cpu::FOLIO_ISA
