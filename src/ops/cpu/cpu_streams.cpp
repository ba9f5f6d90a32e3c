// Ops that work row by row: residual streams, rotation, routing, Engram, and the rows that go into the caches. Bound by
// memory bandwidth or by latency; what matters is that they keep out of the way.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/ref/scalar.h"
#include "ops/row_codec.h"

namespace folio::cpu {
namespace {

constexpr int64_t kMixRows = 6;  // rows that meet the projection of a mix together

int64_t rows_per_task(int64_t elements_per_row) { return std::max<int64_t>(1, kSerialElements / elements_per_row); }

// Four streams: the Sinkhorn iterations on the rows of comb as vectors. Sums are taken in double and rounded once, as
// the reference takes them: twenty iterations carry on what one of them loses.
void sinkhorn4(float* c, int32_t iterations, float eps) {
  __m128 r[4];
  for (int i = 0; i < 4; ++i) r[i] = _mm_loadu_ps(c + 4 * i);
  const __m128 e = _mm_set1_ps(eps);
  const auto divide = [&](__m128 bias) {
    __m256d total = _mm256_cvtps_pd(r[0]);
    for (int i = 1; i < 4; ++i) total = _mm256_add_pd(total, _mm256_cvtps_pd(r[i]));
    const __m128 sum = _mm_add_ps(_mm256_cvtpd_ps(total), bias);
    for (__m128& row : r) row = _mm_div_ps(row, sum);
  };
  // The softmax of each row, then eps.
  _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
  divide(_mm_setzero_ps());
  for (__m128& row : r) row = _mm_add_ps(row, e);
  _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
  divide(e);
  for (int32_t k = 1; k < iterations; ++k) {
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
    divide(e);
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
    divide(e);
  }
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(c + 4 * i, r[i]);
}

// The same for any number of streams.
void sinkhorn(float* c, int32_t n, int32_t iterations, float eps) {
  const auto divide = [&](int32_t from, int32_t step, float bias) {
    double sum = 0;
    for (int32_t j = 0; j < n; ++j) sum += static_cast<double>(c[from + j * step]);
    for (int32_t j = 0; j < n; ++j) c[from + j * step] /= static_cast<float>(sum) + bias;
  };
  for (int32_t i = 0; i < n; ++i) divide(i * n, 1, 0.0f);
  for (int32_t i = 0; i < n * n; ++i) c[i] += eps;
  for (int32_t j = 0; j < n; ++j) divide(j, n, eps);
  for (int32_t k = 1; k < iterations; ++k) {
    for (int32_t i = 0; i < n; ++i) divide(i * n, 1, eps);
    for (int32_t j = 0; j < n; ++j) divide(j, n, eps);
  }
}

bool all_finite(const bf16* x, int64_t n) {
  uint16_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, static_cast<uint16_t>(x[i].bits & 0x7fffu));
  return most < 0x7f80;
}

}  // namespace

// m [(2 + S) * S] of one row -> its coefficients (spec 4.3).
void CpuOps::finish_mix(const HyperMixArgs& args, int64_t row, const float* m) const {
  const int32_t s = args.num_streams;
  const float *scale = host(args.scale).floats, *base = host(args.base).floats;
  const int64_t width = s * args.hidden;
  const float mean = kernels_.mean_square(bits_of(args.streams) + row * width, width);
  const float norm = scalar::rsqrt(mean + args.norm_eps);
  for (int32_t i = 0; i < s; ++i) {
    args.pre[row * s + i] = scalar::sigmoid(m[i] * norm * scale[0] + base[i]) + args.hc_eps;
    args.post[row * s + i] = 2.0f * scalar::sigmoid(m[s + i] * norm * scale[1] + base[s + i]);
  }
  float* comb = args.comb + row * s * s;
  for (int32_t i = 0; i < s; ++i) {
    const int32_t at = 2 * s + i * s;
    float top = -INFINITY;
    for (int32_t j = 0; j < s; ++j) {
      comb[i * s + j] = m[at + j] * norm * scale[2] + base[at + j];
      top = std::max(top, comb[i * s + j]);
    }
    for (int32_t j = 0; j < s; ++j) comb[i * s + j] = scalar::exp(comb[i * s + j] - top);
  }
  if (s == 4) {
    sinkhorn4(comb, args.iterations, args.hc_eps);
  } else {
    sinkhorn(comb, s, args.iterations, args.hc_eps);
  }
}

void CpuOps::hyper_mix(const HyperMixArgs& args) {
  const int32_t s = args.num_streams;
  FOLIO_CHECK(s >= 1 && s <= kMaxStreams, s);
  constexpr int64_t kMost = (2 + kMaxStreams) * kMaxStreams;
  const int64_t outputs = (2 + s) * s, width = s * args.hidden;
  MixArgs mix{bits_of(args.streams), 0, width, host(args.fn).floats, 0, outputs, nullptr, kMost};
  if (args.rows < 2 * pool_.threads()) {
    // Few rows: the projection's bytes count, so threads share its outputs.
    float m[kMost * kMixRows];
    for (int64_t r0 = 0; r0 < args.rows; r0 += kMixRows) {
      mix.rows = std::min(kMixRows, args.rows - r0);
      mix.x = bits_of(args.streams) + r0 * width;
      pool_.parallel_for(outputs, 4, [&](int64_t begin, int64_t end, int) {
        MixArgs part = mix;
        part.first = begin;
        part.count = end - begin;
        part.out = m;
        kernels_.mix(part);
      });
      for (int64_t r = 0; r < mix.rows; ++r) finish_mix(args, r0 + r, m + r * kMost);
    }
    return;
  }
  pool_.parallel_for(args.rows, kMixRows, [&](int64_t begin, int64_t end, int) {
    float m[kMost * kMixRows];
    MixArgs part = mix;
    part.x = bits_of(args.streams) + begin * width;
    part.rows = end - begin;
    part.out = m;
    kernels_.mix(part);
    for (int64_t r = begin; r < end; ++r) finish_mix(args, r, m + (r - begin) * kMost);
  });
}

void CpuOps::hyper_collapse(const HyperCollapseArgs& args) {
  const int64_t width = args.num_streams * args.hidden;
  pool_.parallel_for(args.rows, rows_per_task(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.collapse({bits_of(args.streams) + r * width, args.mix + r * args.num_streams, args.num_streams,
                         args.hidden, bits_of(args.out) + r * args.hidden});
    }
  });
}

void CpuOps::stream_means(const StreamMeansArgs& args) {
  const int64_t width = args.num_streams * args.hidden;
  FOLIO_CHECK(args.num_streams >= 1 && args.num_streams <= kMaxStreams, args.num_streams);
  float mix[kMaxStreams];
  std::fill_n(mix, args.num_streams, 1 / static_cast<float>(args.num_streams));
  pool_.parallel_for(args.rows, rows_per_task(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.collapse({bits_of(args.streams) + r * width, mix, args.num_streams, args.hidden,
                         bits_of(args.out) + r * args.out_stride});
    }
  });
}

void CpuOps::hyper_expand(const HyperExpandArgs& args) {
  const int64_t s = args.num_streams, width = s * args.hidden;
  FOLIO_CHECK(s >= 1 && s <= kMaxStreams, s);
  pool_.parallel_for(args.rows, rows_per_task(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.expand({bits_of(args.streams) + r * width, bits_of(args.y) + r * args.hidden, args.post + r * s,
                       args.comb + r * s * s, s, args.hidden});
    }
  });
}

void CpuOps::rotate(const RotateArgs& args) {
  const int64_t width = args.heads * args.dim;
  pool_.parallel_for(args.rows, rows_per_task(4 * args.heads * args.pairs), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.rotate({bits_of(args.x) + r * width + args.dim - 2 * args.pairs, args.heads, args.dim, args.pairs,
                       args.rope + r * args.pairs * 2, args.inverse});
    }
  });
}

void CpuOps::engram_gather(const EngramGatherArgs& args) {
  const HostWeight& table = host(args.table);
  const int64_t dim = table.in(), blocks = table.scale_stride, count = args.rows * args.columns;
  // Rows lie anywhere in a table that fits no cache: ask for them well ahead.
  constexpr int64_t kAhead = 12;
  const auto prefetch = [&](int64_t i) {
    const int64_t row = args.table_rows[i];
    for (int64_t at = 0; at < dim; at += 64) __builtin_prefetch(table.codes + row * dim + at);
    __builtin_prefetch(table.scales + row * blocks);
  };
  pool_.parallel_for(count, rows_per_task(4 * dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < std::min(begin + kAhead, end); ++i) prefetch(i);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(i + kAhead);
      const int64_t row = args.table_rows[i];
      const uint8_t *codes = table.codes + row * dim, *scales = table.scales + row * blocks;
      bf16* out = args.out + i * dim;
      const bool plain = dim % 32 == 0 && std::all_of(scales, scales + blocks, [](uint8_t scale) {
                           return scale >= kMinScale && scale <= kMaxScale;
                         });
      if (plain) {
        kernels_.dequantize8(codes, scales, dim, bits_of(out));
      } else {
        for (int64_t c = 0; c < dim; ++c) out[c] = to_bf16(e4m3_decode(codes[c]) * e8m0_decode(scales[c / 32]));
      }
    }
  });
}

void CpuOps::engram_inject(const EngramInjectArgs& args) {
  const int64_t s = args.num_streams, hidden = args.hidden;
  const auto dot_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden)));
  pool_.parallel_for(args.rows * s, rows_per_task(4 * hidden), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / s, stream = i % s;
      const uint16_t* kv = bits_of(args.kv) + row * (s + 1) * hidden;
      args.gate[i] =
          kernels_.inject({bits_of(args.streams) + i * hidden, kv + stream * hidden, kv + s * hidden,
                           host(args.q_weight).floats + stream * hidden, host(args.k_weight).floats + stream * hidden,
                           hidden, args.norm_eps, dot_scale, args.image[row] != 0});
    }
  });
}

void CpuOps::route_row(const RouteArgs& args, int64_t row, const float* z, float* affinity) const {
  const int64_t experts = args.gate->out();
  const float* bias = host(args.image[row] ? args.bias_image : args.bias).floats;
  int32_t* ids = args.ids + row * args.k;
  float* weights = args.weights + row * args.k;
  kernels_.affinity(z, experts, affinity);
  // The best so far, largest first; a later expert must be larger to pass an earlier one.
  int32_t found = 0;
  for (int32_t e = 0; e < experts; ++e) {
    const float value = affinity[e] + bias[e];
    if (found == args.k && !(value > weights[found - 1])) continue;
    int32_t at = found < args.k ? found++ : found - 1;
    for (; at > 0 && value > weights[at - 1]; --at) {
      weights[at] = weights[at - 1];
      ids[at] = ids[at - 1];
    }
    weights[at] = value;
    ids[at] = e;
  }
  std::sort(ids, ids + args.k);
  double sum = 0;
  for (int32_t i = 0; i < args.k; ++i) sum += static_cast<double>(affinity[ids[i]]);
  for (int32_t i = 0; i < args.k; ++i) {
    float weight = affinity[ids[i]];
    if (args.normalise && args.k > 1) weight /= static_cast<float>(sum) + 1e-20f;
    weights[i] = weight * args.scale;
  }
}

void CpuOps::route(const RouteArgs& args) {
  const int64_t experts = args.gate->out();
  FOLIO_CHECK(experts <= limits_.max_experts && args.k <= experts, experts);
  const int64_t block = std::min(limits_.max_rows, kLinearRows);
  for (int64_t r0 = 0; r0 < args.rows; r0 += block) {
    const int64_t rows = std::min(block, args.rows - r0);
    LinearArgs product;
    product.weight = args.gate;
    product.x = args.x + r0 * args.gate->in();
    product.rows = rows;
    product.out_f32 = scratch_.router;
    linear(product);
    pool_.parallel_for(rows, rows_per_task(32 * experts), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) {
        route_row(args, r0 + r, scratch_.router + r * experts, scratch_.threads[static_cast<size_t>(thread)].affinity);
      }
    });
  }
}

void CpuOps::encode_window(const EncodeWindowArgs& args) {
  const int64_t dim = args.ring.dim;
  pool_.parallel_for(args.rows, rows_per_task(4 * dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const bf16* x = args.x + r * dim;
      const RowAddress out = args.ring.row_at(args.out, r);
      if (dim % 32 != 0 || !all_finite(x, dim)) {
        EncodeWindowArgs one = args;
        one.x = x;
        one.rows = 1;
        one.out = args.out + r * args.ring.row_stride;
        ReferenceOps::encode_window(one);
      } else if (args.ring.format == RowFormat::kBf16) {
        kernels_.round8(bits_of(x), dim, reinterpret_cast<uint16_t*>(out.codes));
      } else {
        kernels_.quantize8(bits_of(x), dim, reinterpret_cast<uint8_t*>(out.codes),
                           reinterpret_cast<uint8_t*>(out.scales));
      }
    }
  });
}

void CpuOps::write_rows(const WritePagedArgs& args, RowFormat packed) {
  const Rows& rows = args.rows;
  const int64_t dim = args.plane.dim;
  FOLIO_CHECK(dim <= kMaxRowDim, dim);
  pool_.parallel_for(rows.count, rows_per_task(32 * dim), [&](int64_t begin, int64_t end, int) {
    float x[kMaxRowDim] = {};
    for (int64_t r = begin; r < end; ++r) {
      const int32_t entry = rows.completed(static_cast<int32_t>(r), args.ratio);
      if (entry < 0) continue;
      scalar::widen(args.x + r * dim, dim, x);
      const int32_t* table = rows.page_tables + static_cast<int64_t>(rows.request[r]) * rows.page_table_stride;
      encode_row(packed, args.plane.format, x, dim, args.plane.at(table, entry));
    }
  });
}

void CpuOps::write_main(const WritePagedArgs& args) { write_rows(args, RowFormat::kFp4Main); }

void CpuOps::write_index(const WritePagedArgs& args) { write_rows(args, args.plane.format); }

void CpuOps::compress(const CompressArgs& args) {
  const int64_t dim = args.pending.dim;
  const Rows& rows = args.rows;
  pool_.parallel_for(rows.count, rows_per_task(8 * dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const RequestSpan& span = rows.spans[rows.request[r]];
      const int64_t position = rows.position[r];
      bf16* out = args.pooled + r * dim;
      if (position % 2 == 0) {
        std::fill(out, out + dim, bf16{0});
        continue;
      }
      const bool here = r > span.first_row;  // the group's even token belongs to this step
      kernels_.pool({here ? args.kv + (r - 1) * dim : args.pending.value(span.slot, position - 1),
                     here ? args.gate + (r - 1) * dim : args.pending.gate(span.slot, position - 1), args.kv + r * dim,
                     args.gate + r * dim, dim, bits_of(out)});
    }
  });
  // After everybody has read the rings.
  const size_t bytes = static_cast<size_t>(dim) * sizeof(float);
  for (int32_t s = 0; s < rows.num_requests; ++s) {
    const RequestSpan& span = rows.spans[s];
    const int64_t end = span.first_row + span.num_rows;
    for (int64_t r = std::max<int64_t>(span.first_row, end - args.pending.ring_rows); r < end; ++r) {
      std::memcpy(args.pending.value(span.slot, rows.position[r]), args.kv + r * dim, bytes);
      std::memcpy(args.pending.gate(span.slot, rows.position[r]), args.gate + r * dim, bytes);
    }
  }
}

}  // namespace folio::cpu
