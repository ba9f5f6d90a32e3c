#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"
#include "ops/row_codec.h"

namespace folio {
namespace {

// One channel-wise softmax over two gates, and the weighted sum of the two values (spec 6.1).
void pool(const float* kv0, const float* gate0, const float* kv1, const float* gate1, int64_t dim, bf16* out) {
  for (int64_t c = 0; c < dim; ++c) {
    const float top = std::max(gate0[c], gate1[c]);
    const float e0 = scalar::exp(gate0[c] - top), e1 = scalar::exp(gate1[c] - top);
    const float sum = e0 + e1;
    out[c] = to_bf16(kv0[c] * (e0 / sum) + kv1[c] * (e1 / sum));
  }
}

void write_paged(const WritePagedArgs& args, RowFormat packed) {
  const Rows& rows = args.rows;
  std::vector<float> x(static_cast<size_t>(args.plane.dim));
  for (int32_t r = 0; r < rows.count; ++r) {
    const int32_t entry = rows.completed(r, args.ratio);
    if (entry < 0) continue;
    scalar::widen(args.x + static_cast<int64_t>(r) * args.plane.dim, args.plane.dim, x.data());
    const int32_t* table = rows.page_tables + static_cast<int64_t>(rows.request[r]) * rows.page_table_stride;
    encode_row(packed, args.plane.format, x.data(), args.plane.dim, args.plane.at(table, entry));
  }
}

}  // namespace

void ReferenceOps::compress(const CompressArgs& args) {
  const int64_t dim = args.pending.dim;
  const auto bytes = static_cast<size_t>(dim) * sizeof(float);
  for (int32_t s = 0; s < args.rows.num_requests; ++s) {
    const RequestSpan& span = args.rows.spans[s];
    const int32_t end = span.first_row + span.num_rows;
    for (int64_t r = span.first_row; r < end; ++r) {
      bf16* out = args.pooled + r * dim;
      const int64_t position = args.rows.position[r];
      if (position % 2 == 0) {
        std::fill(out, out + dim, bf16{0});
        continue;
      }
      const bool here = r > span.first_row;  // the group's even token belongs to this step
      const float* kv0 = here ? args.kv + (r - 1) * dim : args.pending.value(span.slot, position - 1);
      const float* gate0 = here ? args.gate + (r - 1) * dim : args.pending.gate(span.slot, position - 1);
      pool(kv0, gate0, args.kv + r * dim, args.gate + r * dim, dim, out);
    }
    for (int64_t r = std::max(span.first_row, end - args.pending.ring_rows); r < end; ++r) {
      const int64_t position = args.rows.position[r];
      std::memcpy(args.pending.value(span.slot, position), args.kv + r * dim, bytes);
      std::memcpy(args.pending.gate(span.slot, position), args.gate + r * dim, bytes);
    }
  }
}

void ReferenceOps::write_main(const WritePagedArgs& args) { write_paged(args, RowFormat::kFp4Main); }

void ReferenceOps::write_index(const WritePagedArgs& args) { write_paged(args, args.plane.format); }

void ReferenceOps::encode_window(const EncodeWindowArgs& args) {
  std::vector<float> x(static_cast<size_t>(args.ring.dim));
  for (int64_t r = 0; r < args.rows; ++r) {
    scalar::widen(args.x + r * args.ring.dim, args.ring.dim, x.data());
    encode_row(RowFormat::kFp8Window, args.ring.format, x.data(), args.ring.dim, args.ring.row_at(args.out, r));
  }
}

void ReferenceOps::write_window(const WriteWindowArgs& args) {
  for (int32_t s = 0; s < args.rows.num_requests; ++s) {
    const RequestSpan& span = args.rows.spans[s];
    const int32_t end = span.first_row + span.num_rows;
    for (int32_t r = std::max(span.first_row, end - args.ring.ring_rows); r < end; ++r) {
      std::memcpy(args.ring.at(span.slot, args.rows.position[r]).codes, args.encoded + r * args.ring.row_stride,
                  static_cast<size_t>(args.ring.row_stride));
    }
  }
}

}  // namespace folio
