// Intermediates of a forward for comparison with another implementation, or for who trains on them, under the key
// scheme of tools/oracle/README.md. For host devices only; a forward without a sink does no extra work.
#pragma once

#include <string>

#include "checkpoint/config.h"
#include "numerics/bf16.h"
#include "ops/index_select.h"
#include "ops/rows.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace folio {

// Receives tensors; rows of several steps under one key belong together, one after the other.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Whether put() is to be called for `key`; what nobody wants is not computed.
  virtual bool wants(const std::string& key) const { return static_cast<void>(key), true; }
  // `data` is contiguous host memory of dtype and shape, valid during the call.
  virtual void put(const std::string& key, DType dtype, const Shape& shape, const void* data) = 0;
};

// Puts what the model has at its cut points. All calls are no-ops without a sink.
class Tracer {
 public:
  Tracer() = default;
  explicit Tracer(TraceSink* sink) : sink_(sink) {}
  bool on() const { return sink_ != nullptr; }
  bool wants(const std::string& key) const { return on() && sink_->wants(key); }

  void put(const std::string& key, const bf16* data, const Shape& shape) { put(key, DType::kBF16, shape, data); }
  void put(const std::string& key, const float* data, const Shape& shape) { put(key, DType::kF32, shape, data); }
  void put(const std::string& key, const int32_t* data, const Shape& shape) { put(key, DType::kI32, shape, data); }
  void put(const std::string& key, const int64_t* data, const Shape& shape) { put(key, DType::kI64, shape, data); }

  // .codes and .scales of window rows [rows, dim] from their unrounded values.
  void window(const std::string& key, const bf16* x, int64_t rows, int64_t dim);
  // Of the rows that complete an entry of `ratio`: their values, or codes and scales under QDQ4_16 (main) or as the
  // index plane has them.
  void entries(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim);
  void main_codes(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim);
  void index_codes(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, const PagedRows& plane);
  // index_query (rounded), index_weights, index_scores (visible entries, flat), selected, candidates.
  void selection(const std::string& layer, const IndexSelectArgs& args);
  // Means over the streams, one rounding: what the draft head taps.
  void stream_means(const std::string& key, const bf16* streams, int64_t rows, int64_t num_streams, int64_t hidden);

 private:
  void put(const std::string& key, DType dtype, const Shape& shape, const void* data) {
    if (wants(key)) sink_->put(key, dtype, shape, data);
  }

  TraceSink* sink_ = nullptr;
};

}  // namespace folio
