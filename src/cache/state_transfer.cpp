#include "cache/state_transfer.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

class CopyTransfer final : public StateTransfer {
 public:
  CopyTransfer(const Geometry& geometry, const Ladder& ladder, PagePool& pages, ImageStore& images)
      : ladder_(ladder), units_(image_units(geometry, ImageKind::kBoundary)), pages_(pages), images_(images) {
    FOLIO_CHECK(
        ladder.block == geometry.inputs().block_size && ladder.interval % ladder.block == 0 && ladder.leave_room >= 1,
        "interval ", ladder.interval, " block ", ladder.block);
  }

  StateTransferKind kind() const override { return StateTransferKind::kCopy; }

  Resume resume(const PrefixMatch& match, bool exact) const override {
    for (int64_t blocks = exact ? match.exact_blocks : std::ssize(match.hashes); blocks > 0; --blocks) {
      const auto image = images_.find(match.hashes[static_cast<size_t>(blocks - 1)], exact);
      if (!image) continue;
      const int64_t hit = blocks * ladder_.block;
      return {.hit = hit, .start = hit, .write_from = hit, .image = image};
    }
    return {};
  }

  Rungs admit(const PrefixMatch& match, const Resume& resume, int64_t fresh_pages) override {
    if (resume.hit > 0) ++stats_.resumed;
    Rungs rungs{.last_kept = resume.hit};
    if (match.tokens == resume.hit) return rungs;
    ++stats_.demands_recorded;
    if (pages_.available() + images_.reclaimable() >= fresh_pages + units_) {
      rungs.demand = match.tokens;
    } else {
      ++stats_.demands_declined_no_room;
    }
    return rungs;
  }

  int64_t cut(const Rungs& rungs, int64_t begin, int64_t end, int64_t total) override {
    const int64_t position = cut_chunk(ladder_, rungs, begin, end, total);
    if (position < end) ++(position == rungs.demand ? stats_.chunks_cut_for_demand : stats_.chunks_cut_for_interval);
    return position;
  }

  bool keep(const Rungs& rungs, int64_t position, bool decoding) const override {
    return decoding ? keep_in_decode(ladder_, rungs, position) : keep_after_prefill(ladder_, rungs, position);
  }

 private:
  Ladder ladder_;
  int64_t units_;
  PagePool& pages_;
  ImageStore& images_;
};

class ReplayTransfer final : public StateTransfer {
 public:
  ReplayTransfer(int32_t block, int32_t history_tokens) : block_(block), history_tokens_(history_tokens) {}

  StateTransferKind kind() const override { return StateTransferKind::kReplay; }

  Resume resume(const PrefixMatch& match, bool exact) const override {
    if (exact || match.tokens == 0) return {};
    const int64_t start = std::max<int64_t>(match.tokens - block_, 0);
    return {.hit = match.tokens,
            .start = start,
            .write_from = match.tokens,
            .image = {},
            .history = static_cast<int32_t>(std::min<int64_t>(start, history_tokens_))};
  }

  Rungs admit(const PrefixMatch&, const Resume& resume, int64_t) override {
    if (resume.hit > 0) ++stats_.resumed;
    return {.last_kept = resume.hit};
  }

  int64_t cut(const Rungs&, int64_t, int64_t end, int64_t) override { return end; }
  bool keep(const Rungs&, int64_t, bool) const override { return false; }

 private:
  int64_t block_;
  int32_t history_tokens_;
};

}  // namespace

int64_t snap_interval(int64_t requested, int32_t block) { return std::max<int64_t>(requested, 0) / block * block; }

int64_t cut_chunk(const Ladder& ladder, const Rungs& rungs, int64_t begin, int64_t end, int64_t total) {
  FOLIO_CHECK(begin < end && end <= total);
  const int64_t last = total - ladder.leave_room;
  int64_t cut = end;
  if (ladder.interval > 0) {
    const int64_t rung = std::min(end, last) / ladder.interval * ladder.interval;
    if (rung > begin) cut = rung;
  }
  if (rungs.demand > begin && rungs.demand <= last) cut = std::min(cut, rungs.demand);
  return cut;
}

bool keep_after_prefill(const Ladder& ladder, const Rungs& rungs, int64_t position) {
  if (position == 0) return false;
  return position == rungs.demand || (ladder.interval > 0 && position % ladder.interval == 0);
}

bool keep_in_decode(const Ladder& ladder, const Rungs& rungs, int64_t position) {
  return ladder.interval > 0 && position % ladder.block == 0 && position - rungs.last_kept >= ladder.interval;
}

std::unique_ptr<StateTransfer> make_copy_transfer(const Geometry& geometry, const Ladder& ladder, PagePool& pages,
                                                  ImageStore& images) {
  return std::make_unique<CopyTransfer>(geometry, ladder, pages, images);
}

std::optional<std::string> replay_refusal(const Geometry& geometry) {
  const GeometryInputs& in = geometry.inputs();
  if (in.block_size >= in.window - 1) return std::nullopt;
  return concat("encoder replay rebuilds a window of ", in.window, " tokens from one PAGE, and --block-size ",
                in.block_size, " is too small for it: use at least ", in.window - 1,
                " or --no-encoder-swa-bounded-replay");
}

std::unique_ptr<StateTransfer> make_replay_transfer(const Geometry& geometry, int32_t history_tokens) {
  if (const auto reason = replay_refusal(geometry)) fail(ErrorCode::kInvalidArgument, *reason);
  FOLIO_CHECK(history_tokens >= 0 && history_tokens <= kMaxEngramHistory);
  return std::make_unique<ReplayTransfer>(geometry.inputs().block_size, history_tokens);
}

}  // namespace folio
