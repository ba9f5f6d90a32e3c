// One request's place in the request memory, for who runs steps by hand: tools, measurements and tests.
#pragma once

#include <vector>

#include "engine/model_runner.h"

namespace folio {

// A slot and the pages that its positions have needed so far. Released on destruction.
class Sequence {
 public:
  explicit Sequence(ModelRunner& runner);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence();

  int64_t position() const { return position_; }
  int32_t slot() const { return slot_; }
  const std::vector<int32_t>& pages() const { return pages_; }
  // Adds the sequence's next `rows` rows to the runner's step: allocates their pages and starts its span; the caller
  // adds the rows. Throws Error(kOutOfMemory) when no page is left.
  void begin_span(int64_t rows);
  // Moves an empty sequence to `position` with the pages that it takes; the caller fills them and the slot.
  void skip_to(int64_t position);

 private:
  void cover(int64_t positions);

  ModelRunner& runner_;
  int32_t slot_;
  std::vector<int32_t> pages_;
  int64_t position_ = 0;
};

}  // namespace folio
