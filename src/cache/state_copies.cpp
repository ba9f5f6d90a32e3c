#include "cache/state_copies.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace folio {
namespace {

constexpr int32_t kScratch = -1;  // as the source of a move

// What the copies of a stage read and write, as names of slots and pages.
class Hazards {
 public:
  // Whether a copy with these reads and writes has to wait for the copies noted so far.
  bool conflict(const std::vector<int64_t>& reads, const std::vector<int64_t>& writes) const {
    const auto in = [](const std::set<int64_t>& set) { return [&](int64_t name) { return set.contains(name); }; };
    return std::ranges::any_of(reads, in(writes_)) || std::ranges::any_of(writes, in(writes_)) ||
           std::ranges::any_of(writes, in(reads_));
  }
  void note(const std::vector<int64_t>& reads, const std::vector<int64_t>& writes) {
    reads_.insert(reads.begin(), reads.end());
    writes_.insert(writes.begin(), writes.end());
  }
  void clear() {
    reads_.clear();
    writes_.clear();
  }

 private:
  std::set<int64_t> reads_, writes_;
};

int64_t slot_name(int32_t slot) { return -1 - int64_t{slot}; }

}  // namespace

StateCopies::StateCopies(Device& device, const Geometry& geometry, PagePool& pages, StatePool& states,
                         ImageStore& images)
    : geometry_(geometry),
      pages_(pages),
      states_(states),
      images_(images),
      device_(device),
      scratch_(device, geometry.state_bytes()) {}

void StateCopies::check_slot(int32_t slot) const {
  FOLIO_CHECK(slot >= 0 && slot < states_.capacity(), "slot ", slot, " of ", states_.capacity());
}

void StateCopies::move_slots(std::span<const Move> moves) {
  std::set<int32_t> destinations;
  for (const Move& move : moves) {
    check_slot(move.source);
    check_slot(move.destination);
    FOLIO_CHECK(destinations.insert(move.destination).second, "two moves to slot ", move.destination);
  }
  queued_.push_back({.kind = Kind::kMoves, .moves = {moves.begin(), moves.end()}});
}

void StateCopies::copy_pages(std::span<const Move> moves) {
  std::set<int32_t> sources, destinations;
  for (const Move& move : moves) {
    FOLIO_CHECK(pages_.references(move.source) > 0 && pages_.references(move.destination) > 0, "page ", move.source,
                " or ", move.destination, " is not in use");
    sources.insert(move.source);
    FOLIO_CHECK(destinations.insert(move.destination).second, "two copies to page ", move.destination);
  }
  for (const int32_t page : destinations) FOLIO_CHECK(!sources.contains(page), "page ", page, " is read and written");
  queued_.push_back({.kind = Kind::kPages, .moves = {moves.begin(), moves.end()}});
}

void StateCopies::store(ImageId image, int32_t slot) {
  check_slot(slot);
  // One that lost its prefix since it was reserved is written all the same: it ends when the batch completes.
  FOLIO_CHECK(images_.state(image) != ImageState::kReady, "image ", image, " is written already");
  queued_.push_back({.kind = Kind::kStore, .moves = {}, .image = image, .slot = slot});
}

void StateCopies::restore(ImageId image, int32_t slot, RequestId request) {
  check_slot(slot);
  check_image(geometry_, images_.image(image), pages_.capacity());
  const auto owner = images_.owner(image);
  FOLIO_CHECK(!owner || *owner == request, "request ", request, " restores the image of request ", owner.value_or(-1));
  images_.pin(image);
  if (owner) images_.drop(image);  // lives on until the pin is taken away
  queued_.push_back({.kind = Kind::kRestore, .moves = {}, .image = image, .slot = slot});
}

void StateCopies::poison(Copy copy) {
  if (poison_.bytes() == 0) {
    poison_ = Buffer(device_, std::max(geometry_.page_bytes(), geometry_.state_bytes()));
    device_.fill(poison_.data(), 0xff, poison_.bytes());
  }
  queued_.push_back(std::move(copy));
}

void StateCopies::poison_page(int32_t page) { poison({.kind = Kind::kPoison, .moves = {}, .page = page}); }

void StateCopies::poison_slot(int32_t slot) {
  check_slot(slot);
  poison({.kind = Kind::kPoison, .moves = {}, .slot = slot});
}

void StateCopies::forget_slot(int32_t slot) {
  std::erase_if(queued_, [&](const Copy& copy) {
    if (copy.kind != Kind::kRestore || copy.slot != slot) return false;
    images_.unpin(copy.image);
    return true;
  });
}

void StateCopies::drain(CopyPlan& plan) {
  plan.begin_stage();
  Hazards hazards;
  std::vector<Copy> held;
  for (Copy& copy : queued_) {
    if (copy.kind == Kind::kMoves) {
      plan_moves(copy.moves, plan);
      hazards.clear();
      continue;
    }
    std::vector<int64_t> reads, writes;
    if (copy.kind == Kind::kPages) {
      for (const Move& move : copy.moves) {
        reads.push_back(move.source);
        writes.push_back(move.destination);
      }
    } else if (copy.kind == Kind::kPoison) {
      writes.push_back(copy.page >= 0 ? copy.page : slot_name(copy.slot));
    } else {
      const std::vector<int32_t>& units = images_.image(copy.image).units;
      (copy.kind == Kind::kStore ? writes : reads).assign(units.begin(), units.end());
      (copy.kind == Kind::kStore ? reads : writes).push_back(slot_name(copy.slot));
    }
    if (hazards.conflict(reads, writes)) {
      plan.begin_stage();
      hazards.clear();
    }
    hazards.note(reads, writes);
    if (copy.kind == Kind::kPages) {
      for (const Move& move : copy.moves) {
        plan.stream(pages_.data(), geometry_.page_ranges(move.source), pages_.data(),
                    geometry_.page_ranges(move.destination));
      }
    } else if (copy.kind == Kind::kPoison) {
      const auto ranges = copy.page >= 0 ? geometry_.page_ranges(copy.page) : geometry_.state_ranges(copy.slot);
      for (const MemoryRange& range : ranges) {
        plan.add(poison_.data(), (copy.page >= 0 ? pages_.data() : states_.data()) + range.offset, range.bytes);
      }
    } else {
      plan_image(copy, plan);
      held.push_back(std::move(copy));
    }
  }
  queued_.clear();
  drained_.push_back(std::move(held));
}

void StateCopies::complete() {
  FOLIO_CHECK(!drained_.empty(), "nothing was drained");
  const std::vector<Copy> batch = std::move(drained_.front());
  drained_.pop_front();
  for (const Copy& copy : batch) {
    if (copy.kind == Kind::kStore) {
      images_.complete_store(copy.image);
    } else {
      images_.unpin(copy.image);
    }
  }
}

// Rounds of moves whose destinations nobody has still to read, a stage each. When none is left to go but moves in
// circles, the destination of one is put aside and its reader sent there.
void StateCopies::plan_moves(std::span<const Move> moves, CopyPlan& plan) const {
  std::vector<Move> pending;
  std::ranges::copy_if(moves, std::back_inserter(pending),
                       [](const Move& move) { return move.source != move.destination; });
  const auto add = [&](int32_t source, int32_t destination) {
    const auto whole = geometry_.state_ranges(0);
    const std::byte* from = source == kScratch ? scratch_.data() : states_.data();
    std::byte* to = destination == kScratch ? scratch_.data() : states_.data();
    plan.stream(from, source == kScratch ? whole : geometry_.state_ranges(source), to,
                destination == kScratch ? whole : geometry_.state_ranges(destination));
  };
  while (!pending.empty()) {
    plan.begin_stage();
    std::set<int32_t> sources;
    for (const Move& move : pending) sources.insert(move.source);
    const auto first_free = std::stable_partition(pending.begin(), pending.end(),
                                                  [&](const Move& move) { return sources.contains(move.destination); });
    if (first_free != pending.end()) {
      std::for_each(first_free, pending.end(), [&](const Move& move) { add(move.source, move.destination); });
      pending.erase(first_free, pending.end());
      continue;
    }
    const int32_t aside = pending.front().destination;
    add(aside, kScratch);
    for (Move& move : pending) {
      if (move.source == aside) move.source = kScratch;
    }
  }
  plan.begin_stage();
}

void StateCopies::plan_image(const Copy& copy, CopyPlan& plan) const {
  const StateImage& image = images_.image(copy.image);
  const auto slot =
      image.kind == ImageKind::kBoundary ? geometry_.image_ranges(copy.slot) : geometry_.state_ranges(copy.slot);
  std::vector<MemoryRange> units;
  for (const int32_t unit : image.units) {
    const auto ranges = geometry_.page_ranges(unit);
    units.insert(units.end(), ranges.begin(), ranges.end());
  }
  if (copy.kind == Kind::kStore) {
    plan.stream(states_.data(), slot, pages_.data(), units);
    return;
  }
  // The image may end inside its last unit.
  int64_t left = image.bytes;
  for (MemoryRange& range : units) {
    range.bytes = std::min(range.bytes, left);
    left -= range.bytes;
  }
  plan.stream(pages_.data(), units, states_.data(), slot);
}

}  // namespace folio
