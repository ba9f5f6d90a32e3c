// Requests with histories in rings and pages, for cases whose rows belong to requests. Test code only.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op_cases.h"
#include "ops/row_codec.h"

namespace folio::op_cases {

// A plane of PAGE memory that holds `entries` rows of each request, pages in random order.
class PagedPlane {
 public:
  PagedPlane(Data& data, RowFormat packed, RowFormat plane, int32_t dim, int32_t rows_per_page,
             const std::vector<int32_t>& entries, float spread);

  const PagedRows& rows() const { return rows_; }
  // Page tables of the requests, `stride` apart.
  const std::vector<int32_t>& tables() const { return tables_; }
  int32_t stride() const { return stride_; }

 private:
  PagedRows rows_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> tables_;
  int32_t stride_ = 0;
};

// Rows of several requests: request i has positions first[i] .. first[i] + count[i] - 1 in the step.
struct RequestRows {
  std::vector<int32_t> request;   // of each row
  std::vector<int32_t> position;  // of each row

  void add(int32_t id, int32_t first, int32_t count);
  int32_t size() const { return static_cast<int32_t>(request.size()); }
};

// The part of a step that a choice of rows makes: neighbours in the list that are neighbours in a request share a span.
struct ChosenRows {
  std::vector<int32_t> position, span_of_row;
  std::vector<RequestSpan> spans;
  std::vector<int32_t> request_of_span;
  std::vector<int32_t> page_tables;
  std::vector<uint8_t> image;
  Rows rows;

  ChosenRows(const RequestRows& all, const std::vector<int32_t>& chosen, const PagedPlane* plane);
};

}  // namespace folio::op_cases
