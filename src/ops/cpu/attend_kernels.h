// Attention of one query over a list of cached rows, for the ISA namespace FOLIO_ISA (spec 5.6; kernels.h).
//
// A chunk of up to 64 list slots: scores of all heads against the chunk's rows (the product kernel of gemm_kernels.h
// with rows in place of outputs), probabilities relative to the running maximum, then the values, whose accumulators
// live in scratch between chunks. Per slot and head 4 * dim FLOPs; rows are widened once for all heads.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/math_kernels.h"
#include "ops/cpu/row_kernels.h"

namespace folio::cpu::FOLIO_ISA {

constexpr int kValueHeads = 8;  // heads that share the loads of a value block

// What lies in the scratch of a query: see attend_scratch_bytes.
struct AttendState {
  float* maximum;                      // [heads]
  float* denominator;                  // [heads]
  float* rescale;                      // [heads] of the current chunk
  float* scores;                       // [heads, kAttendChunk]
  float* totals;                       // [heads, dim] in the order of Values' accumulators
  Values::Probability* probabilities;  // [heads, kAttendChunk]
  Values::Elem* query;                 // [heads, dim]; widened, unless bf16 is the operand

  AttendState(std::byte* scratch, int64_t heads, int64_t dim) {
    auto* p = reinterpret_cast<float*>(scratch);
    const int64_t padded = (heads + 15) / 16 * 16;
    maximum = p;
    denominator = p + padded;
    rescale = p + 2 * padded;
    scores = p + 3 * padded;
    totals = scores + heads * kAttendChunk;
    probabilities = reinterpret_cast<Values::Probability*>(totals + heads * dim);
    query = reinterpret_cast<Values::Elem*>(probabilities + heads * kAttendChunk);
  }
};

inline int64_t attend_scratch_bytes(int64_t heads, int64_t dim) {
  return 4 * (3 * (heads + 15) + 2 * heads * kAttendChunk + 2 * heads * dim);
}

inline const Values::Elem* query_rows(const AttendArgsOfRow& args, [[maybe_unused]] const AttendState& state) {
  if constexpr (kReadsBf16Rows) {
    return reinterpret_cast<const Values::Elem*>(args.query);
  } else {
    return state.query;
  }
}

inline void attend_begin(const AttendArgsOfRow& args) {
  const AttendState state(args.scratch, args.heads, args.dim);
  for (int64_t h = 0; h < args.heads; ++h) {
    state.maximum[h] = -1e30f;
    state.denominator[h] = 0;
  }
  for (int64_t i = 0; i < args.heads * args.dim; i += kLanes) store(state.totals + i, zero());
  if constexpr (!kReadsBf16Rows) {
    for (int64_t i = 0; i < args.heads * args.dim; i += kLanes) {
      store(reinterpret_cast<float*>(state.query) + i, load_bf16(args.query + i));
    }
  }
}

// Scores of R heads against the kGroup rows.
template <int R>
inline void score_group(const Values::Elem* const* rows, const Values::Elem* query, int64_t dim, float scale,
                        float* scores) {
  using D = DecodeBf16;  // for its operands
  F acc[R][kGroup];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < kGroup; ++n) acc[r][n] = zero();
  }
  for (int64_t d = 0; d < dim; d += D::kElems) {
    typename D::Operand a[R];
    for (int r = 0; r < R; ++r) a[r] = D::load(query + r * dim + d);
#pragma GCC unroll 8
    for (int n = 0; n < kGroup; ++n) {
      const typename D::Operand b = D::load(rows[n] + d);
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) acc[r][n] = D::dot(acc[r][n], b, a[r]);
    }
  }
  for (int r = 0; r < R; ++r) store_group(scores + r * kAttendChunk, scale_group(sum_group(acc[r]), scale), kGroup);
}

// scores[h, i] for the chunk's rows; slots without a row score -infinity.
inline void score_chunk(const AttendArgsOfRow& args, const AttendState& state, const Values::Elem* const* rows,
                        int64_t n) {
  const Values::Elem* query = query_rows(args, state);
  for (int64_t i = 0; i < n; i += kGroup) {
    const Values::Elem* group[kGroup];
    for (int j = 0; j < kGroup; ++j) group[j] = rows[i + j < n ? i + j : n - 1];
    for (int64_t h = 0; h < args.heads;) {
      float* scores = state.scores + h * kAttendChunk + i;
      const Values::Elem* q = query + h * args.dim;
      if (args.heads - h >= kRows) {
        score_group<kRows>(group, q, args.dim, args.score_scale, scores);
        h += kRows;
      } else if (args.heads - h == 2) {
        score_group<2>(group, q, args.dim, args.score_scale, scores);
        h += 2;
      } else {
        score_group<1>(group, q, args.dim, args.score_scale, scores);
        h += 1;
      }
    }
  }
  const float never = -__builtin_inff();
  for (int64_t h = 0; h < args.heads; ++h) {
    for (int64_t i = n; i < kAttendChunk; ++i) state.scores[h * kAttendChunk + i] = never;
  }
}

inline float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(splat(x)));
  return lanes[0];
}

// Probabilities relative to the running maximum, their fp32 sum, and the factor that older sums take.
inline void softmax_chunk(const AttendArgsOfRow& args, const AttendState& state) {
  for (int64_t h = 0; h < args.heads; ++h) {
    const float* scores = state.scores + h * kAttendChunk;
    F largest_of = load(scores);
    for (int i = kLanes; i < kAttendChunk; i += kLanes) largest_of = max(largest_of, load(scores + i));
    const float chunk = largest(largest_of), before = state.maximum[h];
    const float top = chunk > before ? chunk : before;
    F total = zero();
    for (int i = 0; i < kAttendChunk; i += kLanes) {
      const F p = exp(sub(load(scores + i), splat(top)));
      total = add(total, p);
      Values::store_probabilities(state.probabilities + h * kAttendChunk + i, p);
    }
    const float factor = top == before ? 1.0f : exp_of(before - top);
    state.rescale[h] = factor;
    state.maximum[h] = top;
    state.denominator[h] = state.denominator[h] * factor + sum(total);
  }
}

// totals = totals * rescale + sum over the rows of probability * value, for H heads.
template <int H>
inline void add_values(const AttendArgsOfRow& args, const AttendState& state, const Values::Elem* const* rows,
                       int64_t steps, int64_t head) {
  for (int64_t d = 0; d < args.dim; d += Values::kDims) {
    float* totals = state.totals + head * args.dim + d;
    const Values::Probability* p = state.probabilities + head * kAttendChunk;
    F acc[H][Values::kAccs];
    for (int h = 0; h < H; ++h) {
      for (int a = 0; a < Values::kAccs; ++a) acc[h][a] = zero();
    }
    for (int64_t s = 0; s < steps; ++s) {
      typename Values::Operand v[Values::kAccs];
      Values::load(rows + s * Values::kStep, d, v);
#pragma GCC unroll 8
      for (int h = 0; h < H; ++h) {
        const auto weight = Values::splat(p + h * kAttendChunk + s * Values::kStep);
        for (int a = 0; a < Values::kAccs; ++a) acc[h][a] = Values::dot(acc[h][a], v[a], weight);
      }
    }
    // The chunk's sum first, then the older ones: the error does not grow with every row of the list.
    for (int h = 0; h < H; ++h) {
      const F rescale = splat(state.rescale[head + h]);
      for (int a = 0; a < Values::kAccs; ++a) {
        float* total = totals + h * args.dim + a * kLanes;
        store(total, add(mul(load(total), rescale), acc[h][a]));
      }
    }
  }
}

inline void attend_chunk(const AttendArgsOfRow& args, const void* const* rows_of_chunk, int64_t n) {
  const AttendState state(args.scratch, args.heads, args.dim);
  const auto* rows = reinterpret_cast<const Values::Elem* const*>(rows_of_chunk);
  score_chunk(args, state, rows, n);
  softmax_chunk(args, state);
  const int64_t steps = (n + Values::kStep - 1) / Values::kStep;
  int64_t h = 0;
  for (; h + kValueHeads <= args.heads; h += kValueHeads) add_values<kValueHeads>(args, state, rows, steps, h);
  for (; h + 4 <= args.heads; h += 4) add_values<4>(args, state, rows, steps, h);
  for (; h < args.heads; ++h) add_values<1>(args, state, rows, steps, h);
}

inline void attend_end(const AttendArgsOfRow& args) {
  const AttendState state(args.scratch, args.heads, args.dim);
  for (int64_t h = 0; h < args.heads; ++h) {
    const F denominator = splat(state.denominator[h] + exp_of(args.sink[h] - state.maximum[h]));
    for (int64_t d = 0; d < args.dim; d += Values::kDims) {
      const float* totals = state.totals + h * args.dim + d;
      Values::store_block(args.out + h * args.dim + d, div(load(totals), denominator),
                          div(load(totals + (Values::kAccs - 1) * kLanes), denominator));
    }
  }
}

inline void decode_row(RowFormat format, const uint8_t* codes, const uint8_t* scales, int64_t dim, void* out) {
  decode_cached(format, codes, scales, dim, static_cast<Values::Elem*>(out));
}

}  // namespace folio::cpu::FOLIO_ISA
