// Shapes of up to four dimensions, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace folio {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (int64_t dim : dims) push_back(dim);
  }

  void push_back(int64_t dim) {
    FOLIO_CHECK(rank_ < kMaxRank && dim >= 0);
    dims_[static_cast<size_t>(rank_++)] = dim;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  // Number of elements; 1 for a scalar.
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t dim : *this) n *= dim;
    return n;
  }
  bool operator==(const Shape& other) const = default;

  // "[2, 3]"
  std::string to_string() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) text += concat(i ? ", " : "", (*this)[i]);
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace folio
