#include "engine/sequence.h"

#include "base/error.h"

namespace folio {

Sequence::Sequence(ModelRunner& runner) : runner_(runner) {
  const auto slot = runner.states().ids().allocate();
  FOLIO_CHECK(slot.has_value(), "no free slot");
  slot_ = *slot;
}

Sequence::~Sequence() {
  for (const int32_t page : pages_) runner_.pages().release(page);
  runner_.states().ids().release(slot_);
}

void Sequence::cover(int64_t positions) {
  while (std::ssize(pages_) < runner_.geometry().pages_for(positions)) {
    const auto page = runner_.pages().allocate();
    if (!page) fail(ErrorCode::kOutOfMemory, "no page left for position ", position_, " of a request");
    pages_.push_back(*page);
  }
}

void Sequence::begin_span(int64_t rows) {
  cover(position_ + rows);
  runner_.builder().add_request({.slot = slot_, .restart = position_ == 0}, pages_);
  position_ += rows;
}

void Sequence::skip_to(int64_t position) {
  FOLIO_CHECK(position_ == 0);
  cover(position);
  position_ = position;
}

}  // namespace folio
