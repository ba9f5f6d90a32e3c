#include "cache/page_pool.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace folio {

PagePool::PagePool(Device& device, const Geometry& geometry, int32_t pages)
    : pages_(static_cast<size_t>(pages)), memory_(device, pages * geometry.page_bytes()) {
  reset();
}

void PagePool::reset() {
  std::ranges::fill(pages_, Page{});
  vacant_.resize(pages_.size());
  std::iota(vacant_.rbegin(), vacant_.rend(), 0);
  unit_counts_.clear();
  cached_ = units_ = 0;
  oldest_ = newest_ = -1;
}

PagePool::Page& PagePool::at(int32_t page) {
  FOLIO_CHECK(page >= 0 && page < capacity(), "page ", page, " of ", capacity());
  return pages_[static_cast<size_t>(page)];
}

const PagePool::Page& PagePool::at(int32_t page) const { return const_cast<PagePool*>(this)->at(page); }

std::optional<int32_t> PagePool::allocate() {
  if (available() == 0) return std::nullopt;
  const int32_t page = take(State::kUsed);
  at(page).references = 1;
  return page;
}

void PagePool::claim(int32_t page) {
  Page& entry = at(page);
  FOLIO_CHECK(entry.state == State::kUsed || entry.state == State::kCached, "page ", page, " has no content to claim");
  if (entry.state == State::kCached) {
    remove_cached(page);
    entry.state = State::kUsed;
    ++stats_.revived;
    stats_.most_used = std::max(stats_.most_used, in_use());
  }
  ++entry.references;
}

void PagePool::release(int32_t page) {
  Page& entry = at(page);
  FOLIO_CHECK(entry.state == State::kUsed, "page ", page, " is not in a page table");
  if (--entry.references > 0) return;
  if (entry.published) {
    append_cached(page);
  } else {
    make_vacant(page);
  }
}

int32_t PagePool::references(int32_t page) const { return at(page).references; }

uint64_t PagePool::content(int32_t page) const { return at(page).content; }

bool PagePool::covers(std::span<const int32_t> claimed, int64_t fresh) const {
  const auto revived =
      std::count_if(claimed.begin(), claimed.end(), [&](int32_t page) { return at(page).references == 0; });
  return available() - revived >= fresh;
}

void PagePool::publish(int32_t page) {
  Page& entry = at(page);
  FOLIO_CHECK(entry.state == State::kUsed && !entry.published, "page ", page, " is not in use or published already");
  entry.published = true;
}

void PagePool::unpublish(int32_t page) {
  Page& entry = at(page);
  FOLIO_CHECK(entry.published, "page ", page, " is not published");
  entry.published = false;
  if (entry.state == State::kCached) {
    remove_cached(page);
    make_vacant(page);
  }
}

bool PagePool::published(int32_t page) const { return at(page).published; }

void PagePool::touch(int32_t page) {
  if (at(page).state != State::kCached) return;
  remove_cached(page);
  append_cached(page);
}

std::optional<std::vector<int32_t>> PagePool::allocate_units(UnitOwner owner, int32_t count) {
  FOLIO_CHECK(count > 0 && !unit_counts_.contains(owner), count, " units for owner ", owner);
  if (available() < count) return std::nullopt;
  unit_counts_[owner] = count;
  std::vector<int32_t> units;
  units.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    // What the eviction hook releases only adds to what is available.
    const int32_t page = take(State::kUnit);
    at(page).owner = owner;
    units.push_back(page);
  }
  return units;
}

void PagePool::release_units(UnitOwner owner, std::span<const int32_t> units) {
  const auto count = unit_counts_.find(owner);
  FOLIO_CHECK(count != unit_counts_.end() && count->second == std::ssize(units), "owner ", owner, " returns ",
              units.size(), " units");
  unit_counts_.erase(count);
  for (const int32_t page : units) {
    const Page& entry = at(page);
    FOLIO_CHECK(entry.state == State::kUnit && entry.owner == owner, "page ", page, " is no unit of owner ", owner);
    --units_;
    make_vacant(page);
  }
}

int32_t PagePool::take(State state) {
  int32_t page = -1;
  bool evicted = false;
  if (!vacant_.empty()) {
    page = vacant_.back();
    vacant_.pop_back();
  } else {
    page = oldest_;
    remove_cached(page);
    evicted = true;
  }
  Page& entry = at(page);
  entry.state = state;
  entry.published = false;
  entry.content = ++contents_;
  if (state == State::kUnit) ++units_;
  ++stats_.allocated;
  stats_.most_used = std::max(stats_.most_used, in_use());
  // Last: the hook may release other pages and must see this one as taken.
  if (evicted) {
    ++stats_.evicted;
    if (on_evict_) on_evict_(page);
    if (on_discard_) on_discard_(page);
  }
  return page;
}

void PagePool::make_vacant(int32_t page) {
  at(page) = {};
  vacant_.push_back(page);
  if (on_discard_) on_discard_(page);
}

void PagePool::append_cached(int32_t page) {
  Page& entry = at(page);
  entry.state = State::kCached;
  entry.older = newest_;
  entry.newer = -1;
  (newest_ < 0 ? oldest_ : at(newest_).newer) = page;
  newest_ = page;
  ++cached_;
}

void PagePool::remove_cached(int32_t page) {
  const Page& entry = at(page);
  (entry.older < 0 ? oldest_ : at(entry.older).newer) = entry.newer;
  (entry.newer < 0 ? newest_ : at(entry.newer).older) = entry.older;
  --cached_;
}

}  // namespace folio
