#include "ops/request_cases.h"

#include <numeric>

namespace folio::op_cases {

PagedPlane::PagedPlane(Data& data, RowFormat packed, RowFormat plane, int32_t dim, int32_t rows_per_page,
                       const std::vector<int32_t>& entries, float spread) {
  int32_t pages = 0;
  for (int32_t n : entries) stride_ = std::max(stride_, (n + rows_per_page - 1) / rows_per_page + 1);
  for (int32_t n : entries) pages += (n + rows_per_page - 1) / rows_per_page;
  std::vector<int32_t> ids(static_cast<size_t>(pages));
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[data.below(static_cast<uint32_t>(i))]);

  rows_.format = plane;
  rows_.dim = dim;
  rows_.rows_per_page = rows_per_page;
  rows_.code_stride = code_bytes(plane, dim);
  rows_.scale_stride = scale_bytes(plane, dim);
  rows_.codes_offset = 64;
  rows_.scales_offset = 64 + rows_per_page * rows_.code_stride;
  rows_.page_stride = (rows_.scales_offset + rows_per_page * rows_.scale_stride + 63) / 64 * 64;
  memory_.resize(static_cast<size_t>(pages * rows_.page_stride));
  rows_.base = memory_.data();

  size_t next = 0;
  for (int32_t n : entries) {
    const size_t table = tables_.size();
    for (int32_t p = 0; p < stride_; ++p) {
      tables_.push_back(p < (n + rows_per_page - 1) / rows_per_page ? ids[next++] : -1);
    }
    for (int32_t j = 0; j < n; ++j) {
      std::vector<float> x;
      for (bf16 v : data.activations(dim, spread)) x.push_back(to_float(v));
      encode_row(packed, plane, x.data(), dim, rows_.at(tables_.data() + table, j));
    }
  }
}

void RequestRows::add(int32_t id, int32_t first, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    request.push_back(id);
    position.push_back(first + i);
  }
}

ChosenRows::ChosenRows(const RequestRows& all, const std::vector<int32_t>& chosen, const PagedPlane* plane) {
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto row = static_cast<size_t>(chosen[i]);
    const int32_t request = all.request[row], at = all.position[row];
    const bool follows = i > 0 && request_of_span.back() == request && position.back() + 1 == at;
    if (!follows) {
      spans.push_back({static_cast<int32_t>(i), 0, static_cast<int32_t>(spans.size()), 0, -1});
      request_of_span.push_back(request);
      if (plane != nullptr) {
        const auto begin = plane->tables().begin() + static_cast<ptrdiff_t>(request) * plane->stride();
        page_tables.insert(page_tables.end(), begin, begin + plane->stride());
      }
    }
    ++spans.back().num_rows;
    position.push_back(at);
    span_of_row.push_back(static_cast<int32_t>(spans.size()) - 1);
  }
  image.resize(chosen.size());
  rows.count = static_cast<int32_t>(chosen.size());
  rows.num_requests = static_cast<int32_t>(spans.size());
  rows.spans = spans.data();
  rows.request = span_of_row.data();
  rows.position = position.data();
  rows.image = image.data();
  rows.page_tables = page_tables.data();
  rows.page_table_stride = plane != nullptr ? plane->stride() : 0;
}

}  // namespace folio::op_cases
