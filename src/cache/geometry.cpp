#include "cache/geometry.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + Geometry::kAlignment - 1) / Geometry::kAlignment * Geometry::kAlignment;
}

int64_t row_bytes(RowFormat format, int64_t dim) { return code_bytes(format, dim) + scale_bytes(format, dim); }

void validate(const GeometryInputs& in) {
  std::string reasons;
  const auto require = [&](bool holds, const std::string& reason) {
    if (!holds) reasons += (reasons.empty() ? "" : "; ") + reason;
  };
  require(in.window_layers > 0 && in.window > 0 && in.slack >= 0,
          "layers and window must be positive, slack not negative");
  require(in.head_dim > 0 && in.head_dim % 32 == 0,
          concat("head_dim ", in.head_dim, " must be a positive multiple of 32"));
  require(in.owners.empty() || (in.index_dim > 0 && in.index_dim % 32 == 0),
          concat("index_head_dim ", in.index_dim, " must be a positive multiple of 32"));
  int32_t largest_ratio = 1;
  for (size_t i = 0; i < in.owners.size(); ++i) {
    const auto& owner = in.owners[i];
    require(owner.ratio == 1 || owner.ratio == 2,
            concat("ratio ", owner.ratio, " of layer ", owner.layer, " must be 1 or 2"));
    require(i == 0 || owner.layer > in.owners[i - 1].layer, "owners must be unique and ascending");
    largest_ratio = std::max(largest_ratio, owner.ratio);
  }
  require(in.block_size >= Geometry::kMinBlockSize && in.block_size % largest_ratio == 0,
          concat("block size ", in.block_size, " must be at least ", Geometry::kMinBlockSize, " and a multiple of ",
                 largest_ratio, ", the largest compression ratio"));
  if (!reasons.empty()) fail(ErrorCode::kInvalidArgument, "cache layout: ", reasons);
}

}  // namespace

Geometry::Geometry(GeometryInputs inputs) : inputs_(std::move(inputs)) {
  validate(inputs_);
  const int64_t main_bytes = row_bytes(inputs_.format.main(), inputs_.head_dim);
  planes_.resize(inputs_.owners.size());
  const auto take = [](int64_t& end, int64_t bytes) {
    const int64_t start = end;
    end += aligned(bytes);
    return start;
  };
  for (size_t i = 0; i < planes_.size(); ++i) {
    const int64_t rows = inputs_.block_size / inputs_.owners[i].ratio;
    planes_[i].main_offset = take(page_bytes_, rows * main_bytes);
    planes_[i].index_codes = take(page_bytes_, rows * code_bytes(inputs_.format.index(), inputs_.index_dim));
    planes_[i].index_scales = take(page_bytes_, rows * scale_bytes(inputs_.format.index(), inputs_.index_dim));
  }

  // Window rings and the cursor first: the part that an image carries is one range.
  window_row_stride_ = row_bytes(inputs_.format.window(), inputs_.head_dim);
  take(state_bytes_, int64_t{inputs_.window_layers} * ring_rows() * window_row_stride_);
  cursor_offset_ = take(state_bytes_, sizeof(SlotCursor));
  for (size_t i = 0; i < planes_.size(); ++i) {
    if (inputs_.owners[i].ratio == 1) continue;
    planes_[i].pending_offset =
        take(state_bytes_, 2 * int64_t{pending_rows()} * inputs_.head_dim * int64_t{sizeof(float)});
  }
}

std::string Geometry::identity() const {
  std::string owners;
  for (const auto& owner : inputs_.owners) owners += concat(owners.empty() ? "" : ",", owner.layer, "r", owner.ratio);
  return concat("folio-v1:", inputs_.format.packed ? "packed" : "bf16",
                inputs_.format.fp8_index ? ":index-fp8" : ":index-fp4", ":layers=", inputs_.window_layers,
                ":owners=", owners, ":block=", inputs_.block_size, ":window=", inputs_.window, "+", inputs_.slack,
                ":dims=", inputs_.head_dim, ",", inputs_.index_dim, ":history=", kMaxEngramHistory, ":ties=lowest");
}

PagedRows Geometry::main_rows(std::byte* pages, size_t owner) const {
  const RowFormat format = inputs_.format.main();
  const int64_t bytes = row_bytes(format, inputs_.head_dim);
  return {.base = pages,
          .page_stride = page_bytes_,
          .codes_offset = planes_[owner].main_offset,
          .code_stride = bytes,
          .scales_offset = planes_[owner].main_offset + code_bytes(format, inputs_.head_dim),
          .scale_stride = bytes,
          .rows_per_page = inputs_.block_size / inputs_.owners[owner].ratio,
          .dim = inputs_.head_dim,
          .format = format};
}

PagedRows Geometry::index_rows(std::byte* pages, size_t owner) const {
  return {.base = pages,
          .page_stride = page_bytes_,
          .codes_offset = planes_[owner].index_codes,
          .code_stride = code_bytes(inputs_.format.index(), inputs_.index_dim),
          .scales_offset = planes_[owner].index_scales,
          .scale_stride = scale_bytes(inputs_.format.index(), inputs_.index_dim),
          .rows_per_page = inputs_.block_size / inputs_.owners[owner].ratio,
          .dim = inputs_.index_dim,
          .format = inputs_.format.index()};
}

RingRows Geometry::window_rows(std::byte* states, int32_t layer) const {
  return {.base = states + int64_t{layer} * ring_rows() * window_row_stride_,
          .slot_stride = state_bytes_,
          .row_stride = window_row_stride_,
          .ring_rows = ring_rows(),
          .dim = inputs_.head_dim,
          .format = inputs_.format.window()};
}

PendingRows Geometry::pending_rows(std::byte* states, size_t owner) const {
  FOLIO_CHECK(inputs_.owners[owner].ratio == 2);
  return {.base = states + planes_[owner].pending_offset,
          .slot_stride = state_bytes_,
          .gate_offset = int64_t{pending_rows()} * inputs_.head_dim * int64_t{sizeof(float)},
          .ring_rows = pending_rows(),
          .dim = inputs_.head_dim};
}

std::vector<MemoryRange> Geometry::page_ranges(int64_t page) const { return {{page * page_bytes_, page_bytes_}}; }

std::vector<MemoryRange> Geometry::image_ranges(int64_t slot) const {
  return {{slot * state_bytes_, cursor_offset_ + aligned(sizeof(SlotCursor))}};
}

std::vector<MemoryRange> Geometry::state_ranges(int64_t slot) const { return {{slot * state_bytes_, state_bytes_}}; }

}  // namespace folio
