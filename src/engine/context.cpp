#include "engine/context.h"

#include <vector>

#include "base/rng.h"
#include "ops/row_codec.h"

namespace folio {
namespace {

// Random rows drawn from a small set: encoding every row of a long context would take longer than the measurement.
class RowSet {
 public:
  RowSet(RowFormat packed, int64_t dim, uint64_t seed) : packed_(packed), dim_(dim), values_(kRows * dim) {
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = bf16_round(static_cast<float>(random_normal(seed, static_cast<uint64_t>(packed), i)));
    }
  }
  void write(RowFormat plane, int64_t row, RowAddress out) const {
    const auto pick = static_cast<int64_t>(mix64(static_cast<uint64_t>(row)) % kRows);
    encode_row(packed_, plane, values_.data() + pick * dim_, dim_, out);
  }

 private:
  static constexpr int64_t kRows = 64;
  RowFormat packed_;
  int64_t dim_;
  std::vector<float> values_;
};

}  // namespace

void install_random_context(ModelRunner& runner, Sequence& sequence, int64_t tokens, uint64_t seed) {
  const Geometry& geometry = runner.geometry();
  const CacheView cache(geometry, runner.pages(), runner.states());
  sequence.skip_to(tokens);
  const RowSet window(RowFormat::kFp8Window, geometry.inputs().head_dim, seed);
  const RowSet main(RowFormat::kFp4Main, geometry.inputs().head_dim, seed);
  const RowSet keys(geometry.inputs().format.index(), geometry.inputs().index_dim, seed);
  for (const RingRows& ring : cache.window) {
    for (int64_t p = 0; p < ring.ring_rows; ++p) window.write(ring.format, p, ring.at(sequence.slot(), p));
  }
  for (size_t i = 0; i < cache.owners.size(); ++i) {
    const CacheView::Owner& owner = cache.owners[i];
    for (int64_t row = 0; row < tokens / geometry.inputs().owners[i].ratio; ++row) {
      main.write(owner.main.format, row, owner.main.at(sequence.pages().data(), row));
      keys.write(owner.index.format, row, owner.index.at(sequence.pages().data(), row));
    }
  }
  auto& cursor = *reinterpret_cast<SlotCursor*>(cache.cursors + sequence.slot() * cache.cursor_stride);
  cursor = {};
  cursor.position = tokens;
}

}  // namespace folio
