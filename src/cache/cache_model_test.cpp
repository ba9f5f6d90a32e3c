// Page pool, prefix index and images together against a plain model, over thousands of random operations of imaginary
// requests. The model keeps sets, lists and maps of whole prefixes and no hashes. Besides, every page and every slot
// holds a stamp of what it should contain, so that a page with two writers, or one that is found after it was given up,
// shows in its bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "cache/cache_test_util.h"

namespace folio {
namespace {

using test::hashes_of;
using test::kBlock;
using test::SmallCache;
using test::tokens_of;
using Prefix = std::vector<int32_t>;  // names of blocks

struct Request {
  RequestId id = 0;
  Prefix names;  // all that it will have
  int32_t slot = -1;
  std::vector<int32_t> pages;  // of its first blocks, computed
  Prefix done() const { return {names.begin(), names.begin() + std::ssize(pages)}; }
};

struct ModelImage {
  Prefix prefix;
  bool exact = true;
  RequestId request = -1;  // of a private one
  std::vector<int32_t> units, kept;
  bool writing = true, dropped = false;
  int pins = 0;
  int64_t stamp = 0;
};

// What should be where.
struct Model {
  std::set<int32_t> vacant;
  std::vector<int32_t> cached;      // least recently released first
  std::map<int32_t, int> used;      // references
  std::map<Prefix, int32_t> index;  // the canonical page
  std::map<ImageId, ModelImage> images;
  std::vector<ImageId> evictable;  // least recently used first

  int64_t available() const { return std::ssize(vacant) + std::ssize(cached); }
  int64_t reclaimable() const {
    int64_t pages = 0;
    for (const ImageId id : evictable) {
      const ModelImage& image = images.at(id);
      pages +=
          std::ssize(image.units) + std::ranges::count_if(image.kept, [&](int32_t page) { return used.at(page) == 1; });
    }
    return pages;
  }
  const Prefix* published(int32_t page) const {
    for (const auto& [prefix, canonical] : index) {
      if (canonical == page) return &prefix;
    }
    return nullptr;
  }
  // The pool handed out `page`.
  void take(int32_t page) {
    if (!vacant.empty()) {
      ASSERT_EQ(vacant.erase(page), 1u) << page << " was not vacant";
      return;
    }
    ASSERT_FALSE(cached.empty());
    ASSERT_EQ(cached.front(), page);
    cached.erase(cached.begin());
    unpublish(page);
  }
  void unpublish(int32_t page) {
    const Prefix prefix = *published(page);
    index.erase(prefix);
    std::vector<ImageId> ids;
    for (const auto& [id, image] : images) {
      if (image.request < 0 && !image.dropped && image.prefix == prefix) ids.push_back(id);
    }
    for (const ImageId id : ids) drop(id);
  }
  void claim(int32_t page) {
    std::erase(cached, page);
    ++used[page];
  }
  void release(int32_t page) {
    ASSERT_GT(used[page], 0);
    if (--used[page] > 0) return;
    used.erase(page);
    if (published(page) != nullptr) {
      cached.push_back(page);
    } else {
      vacant.insert(page);
    }
  }
  void drop(ImageId id) {
    images[id].dropped = true;
    std::erase(evictable, id);
    end_if_idle(id);
  }
  void end_if_idle(ImageId id) {
    const ModelImage image = images[id];
    if (image.writing || image.pins > 0) return;
    vacant.insert(image.units.begin(), image.units.end());
    for (auto page = image.kept.rbegin(); page != image.kept.rend(); ++page) release(*page);
    images.erase(id);
  }
  std::optional<ImageId> find(const Prefix& prefix, bool exact, bool ready) const {
    std::optional<ImageId> found;
    for (const auto& [id, image] : images) {
      if (image.request >= 0 || image.dropped || image.prefix != prefix || (exact && !image.exact)) continue;
      if (ready && image.writing) continue;
      if (!found || image.exact) found = id;
    }
    return found;
  }
};

class Simulation {
 public:
  Simulation(uint64_t seed, int32_t pages) : random_(seed), cache_(pages, kSlots) {
    for (int32_t page = 0; page < pages; ++page) model_.vacant.insert(page);
    for (int32_t slot = 0; slot < kSlots; ++slot) free_slots_.push_back(slot);
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const int64_t draw = below(100);
      draw < 12   ? start()
      : draw < 50 ? grow()
      : draw < 60 ? finish()
      : draw < 72 ? store()
      : draw < 80 ? restore()
      : draw < 88 ? step()
      : draw < 91 ? preempt()
      : draw < 95 ? resume()
      : draw < 97 ? evict_image()
      : draw < 99 ? evict_page()
                  : clear();
      check();
    }
    // Nothing leaks: with all requests and images gone every page can be had again.
    step();
    while (!running_.empty()) finish();
    for (const Request& request : preempted_) forget(request);
    while (cache_.images.evict_one()) model_.drop(model_.evictable.front());
    check();
    EXPECT_EQ(cache_.pages.in_use(), 0);
    EXPECT_EQ(cache_.images.size(), 0);
  }
  const PrefixIndex::Stats& index_stats() const { return cache_.index.stats(); }
  const ImageStore::Stats& image_stats() const { return cache_.images.stats(); }

 private:
  static constexpr int32_t kSlots = 6;

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Request* any_running() {
    return running_.empty() ? nullptr : &running_[static_cast<size_t>(below(std::ssize(running_)))];
  }

  static int64_t stamp_of(const Prefix& prefix) {
    uint64_t stamp = 1;
    for (const int32_t name : prefix) stamp = stamp * 1000003 + static_cast<uint64_t>(name);
    return static_cast<int64_t>(stamp);
  }
  static void fill(std::byte* memory, const std::vector<MemoryRange>& ranges, int64_t stamp) {
    for (const MemoryRange& range : ranges) {
      for (int64_t i = 0; i < range.bytes / 8; ++i) std::memcpy(memory + range.offset + 8 * i, &stamp, 8);
    }
  }
  static void expect_filled(const std::byte* memory, const std::vector<MemoryRange>& ranges, int64_t stamp) {
    for (const MemoryRange& range : ranges) {
      for (int64_t i = 0; i < range.bytes / 8; ++i) {
        ASSERT_EQ(std::memcmp(memory + range.offset + 8 * i, &stamp, 8), 0) << "wrong content";
      }
    }
  }
  void expect_page(int32_t page, const Prefix& prefix) {
    expect_filled(cache_.pages.data(), cache_.geometry.page_ranges(page), stamp_of(prefix));
  }

  // Claims what of the request's prefix is published.
  void match(Request& request) {
    const std::vector<int32_t> tokens = tokens_of(request.names);
    const PrefixMatch found = cache_.index.match(hashes_of(tokens), tokens, below(2) == 0);
    std::vector<int32_t> expected;
    for (Prefix prefix; prefix.size() < request.names.size();) {
      prefix.push_back(request.names[prefix.size()]);
      const auto page = model_.index.find(prefix);
      if (page == model_.index.end()) break;
      expected.push_back(page->second);
      expect_page(page->second, prefix);
    }
    ASSERT_EQ(found.pages, expected);
    for (const int32_t page : found.pages) {
      cache_.pages.claim(page);
      model_.claim(page);
    }
    request.pages = found.pages;
  }
  void start() {
    if (free_slots_.empty()) return;
    Request request{.id = next_request_++, .names = {}, .slot = take_slot(), .pages = {}};
    for (int64_t blocks = 1 + below(6); blocks > 0; --blocks) request.names.push_back(static_cast<int32_t>(below(2)));
    match(request);
    running_.push_back(std::move(request));
  }
  int32_t take_slot() {
    const int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void grow() {
    Request* request = any_running();
    if (request == nullptr || request->pages.size() == request->names.size()) return;
    const bool possible = model_.available() > 0;
    const auto page = cache_.pages.allocate();
    ASSERT_EQ(page.has_value(), possible);
    if (!page) return;
    model_.take(*page);
    model_.used[*page] = 1;
    request->pages.push_back(*page);
    const Prefix done = request->done();
    fill(cache_.pages.data(), cache_.geometry.page_ranges(*page), stamp_of(done));
    const std::vector<int32_t> tokens = tokens_of(request->names);
    const auto published = cache_.index.publish(hashes_of(tokens), tokens, Chain::kExact, std::ssize(done) - 1, *page);
    const auto canonical = model_.index.try_emplace(done, *page).first->second;
    ASSERT_EQ(published.canonical, canonical);
    if (std::erase(model_.cached, canonical) > 0) model_.cached.push_back(canonical);
  }

  void release_pages(Request& request) {
    for (auto page = request.pages.rbegin(); page != request.pages.rend(); ++page) {
      cache_.pages.release(*page);
      model_.release(*page);
    }
    request.pages.clear();
    free_slots_.push_back(request.slot);
  }
  Request remove(Request* request) {
    Request out = std::move(*request);
    running_.erase(running_.begin() + (request - running_.data()));
    return out;
  }
  void finish() {
    Request* request = any_running();
    if (request == nullptr) return;
    Request gone = remove(request);
    release_pages(gone);
  }

  // What a reservation of `count` units did: images evicted, then units taken.
  void reserve(int64_t count, const std::vector<int32_t>& units) {
    while (model_.available() < count) model_.drop(model_.evictable.front());
    for (const int32_t unit : units) model_.take(unit);
  }
  void queue_store(ImageId id, const Request& request, ModelImage image) {
    image.units = cache_.images.image(id).units;
    image.stamp = ++stamps_;
    fill(cache_.states.data(), cache_.geometry.state_ranges(request.slot), image.stamp);
    reserve(std::ssize(image.units), image.units);
    const auto replaced = image.request < 0 ? model_.find(image.prefix, false, false) : std::nullopt;
    model_.images[id] = std::move(image);
    if (replaced) model_.drop(*replaced);
    cache_.copies.store(id, request.slot);
    run_copies(id, true);  // at once: the slot's stamp changes with its next store
  }
  void store() {
    const Request* request = any_running();
    if (request == nullptr || request->pages.empty()) return;
    const Prefix done = request->done();
    const bool exact = below(2) == 0;
    const BlockHash hash = hashes_of(tokens_of(done)).prefix(Chain::kExact, std::ssize(done) * kBlock);
    const bool present = model_.find(done, exact, false).has_value();
    const bool room = model_.available() + model_.reclaimable() >= cache_.units();
    const auto id = cache_.images.begin_store({hash, exact});
    ASSERT_EQ(id.has_value(), !present && room);
    if (id) queue_store(*id, *request, {.prefix = done, .exact = exact, .units = {}, .kept = {}});
  }
  void restore() {
    const Request* request = any_running();
    if (request == nullptr || request->pages.empty()) return;
    const bool exact = below(2) == 0;
    const Prefix done = request->done();
    const BlockHash hash = hashes_of(tokens_of(done)).prefix(Chain::kExact, std::ssize(done) * kBlock);
    const auto id = cache_.images.find(hash, exact);
    ASSERT_EQ(id, model_.find(done, exact, true));
    if (id) queue_restore(*id, *request);
  }
  void queue_restore(ImageId id, const Request& request) {
    fill(cache_.states.data(), cache_.geometry.state_ranges(request.slot), -1);
    cache_.copies.restore(id, request.slot, request.id);
    ModelImage& image = model_.images[id];
    ++image.pins;
    std::erase(model_.evictable, id);
    const bool whole = image.request >= 0;
    if (whole) image.dropped = true;
    run_copies(id, false);
    expect_filled(cache_.states.data(),
                  whole ? cache_.geometry.state_ranges(request.slot) : cache_.geometry.image_ranges(request.slot),
                  image.stamp);
  }
  void run_copies(ImageId id, bool store) {
    CopyPlan plan;
    cache_.copies.drain(plan);
    plan.run(*cache_.ops);
    drained_.emplace_back(id, store);
  }
  // Everything drained so far is done.
  void step() {
    for (const auto& [id, store] : drained_) {
      cache_.copies.complete();
      ModelImage& image = model_.images.at(id);
      if (store) {
        image.writing = false;
      } else {
        --image.pins;
      }
      if (image.dropped) {
        model_.end_if_idle(id);
      } else if (image.pins == 0) {
        model_.evictable.push_back(id);
      }
    }
    drained_.clear();
  }

  // The request goes, and its state stays if there is room, with the pages that the index does not hold.
  void preempt() {
    Request* request = any_running();
    if (request == nullptr) return;
    Request gone = remove(request);
    std::vector<int32_t> kept, others;
    for (const int32_t page : gone.pages) (model_.published(page) == nullptr ? kept : others).push_back(page);
    const int64_t units = image_units(cache_.geometry, ImageKind::kPrivate);
    const bool room = model_.available() + model_.reclaimable() >= units;
    const auto id = cache_.images.begin_private(gone.id, kept);
    ASSERT_EQ(id.has_value(), room);
    if (id) {
      queue_store(*id, gone, {.prefix = {}, .request = gone.id, .units = {}, .kept = kept});
      gone.pages = others;
    }
    release_pages(gone);
    preempted_.push_back(std::move(gone));
  }
  // It comes back, from its image if that is there, and continues from what it finds.
  void resume() {
    if (preempted_.empty() || free_slots_.empty()) return;
    Request request = std::move(preempted_.back());
    preempted_.pop_back();
    request.slot = take_slot();
    const auto id = own_image(request);
    ASSERT_EQ(cache_.images.find_private(request.id), id && !model_.images[*id].writing ? id : std::nullopt);
    if (id && !model_.images[*id].writing) {
      queue_restore(*id, request);
      const std::vector<int32_t> kept = cache_.images.take_kept_pages(*id);
      ASSERT_EQ(kept, std::exchange(model_.images[*id].kept, {}));
      for (const int32_t page : kept) {
        cache_.pages.release(page);
        model_.release(page);
      }
    } else {
      forget(request);
    }
    match(request);
    running_.push_back(std::move(request));
  }
  std::optional<ImageId> own_image(const Request& request) const {
    for (const auto& [id, image] : model_.images) {
      if (image.request == request.id && !image.dropped) return id;
    }
    return std::nullopt;
  }
  void forget(const Request& request) {
    if (const auto id = own_image(request)) {
      cache_.images.drop(*id);
      model_.drop(*id);
    }
  }

  void evict_image() {
    const bool possible = !model_.evictable.empty();
    ASSERT_EQ(cache_.images.evict_one(), possible);
    if (possible) model_.drop(model_.evictable.front());
  }
  void evict_page() {
    if (model_.index.empty()) return;
    const int32_t page =
        std::next(model_.index.begin(), static_cast<ptrdiff_t>(below(std::ssize(model_.index))))->second;
    cache_.index.evict(page);
    unpublish(page);
  }
  void clear() {
    cache_.index.clear();
    while (!model_.index.empty()) unpublish(model_.index.begin()->second);
  }
  void unpublish(int32_t page) {
    model_.unpublish(page);
    if (std::erase(model_.cached, page) > 0) model_.vacant.insert(page);
  }

  void check() {
    const PagePool& pages = cache_.pages;
    ASSERT_EQ(pages.vacant(), std::ssize(model_.vacant));
    ASSERT_EQ(pages.cached(), std::ssize(model_.cached));
    int64_t units = 0;
    for (const auto& [id, image] : model_.images) units += std::ssize(image.units);
    ASSERT_EQ(pages.units(), units);
    ASSERT_EQ(pages.in_use(), units + std::ssize(model_.used));
    for (const auto& [page, references] : model_.used) ASSERT_EQ(pages.references(page), references);
    ASSERT_EQ(cache_.index.size(), std::ssize(model_.index));
    for (const auto& [prefix, page] : model_.index) ASSERT_TRUE(pages.published(page));
    ASSERT_EQ(cache_.images.size(), std::ssize(model_.images));
    ASSERT_EQ(cache_.images.reclaimable(), model_.reclaimable());
    for (const auto& [id, image] : model_.images) {
      ASSERT_EQ(cache_.images.pins(id), image.pins);
      ASSERT_EQ(cache_.images.state(id), image.dropped   ? ImageState::kEvicting
                                         : image.writing ? ImageState::kCopying
                                                         : ImageState::kReady);
    }
    for (const Request& request : running_) {
      if (!request.pages.empty()) expect_page(request.pages.back(), request.done());
    }
  }

  std::mt19937_64 random_;
  SmallCache cache_;
  Model model_;
  std::vector<Request> running_, preempted_;
  std::vector<int32_t> free_slots_;
  std::vector<std::pair<ImageId, bool>> drained_;  // and whether it was a store
  RequestId next_request_ = 0;
  int64_t stamps_ = 0;
};

TEST(CacheModel, RandomOperationsAgreeWithThePlainModel) {
  // Pools from hopeless to roomy; 20,000 operations in all.
  PrefixIndex::Stats index;
  ImageStore::Stats images;
  for (const int32_t pages : {3, 8, 12, 20, 40}) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(testing::Message() << pages << " pages, seed " << seed);
      Simulation simulation(seed, pages);
      simulation.run(500);
      if (HasFailure()) return;
      index.evicted += simulation.index_stats().evicted;
      index.duplicates += simulation.index_stats().duplicates;
      images.kept += simulation.image_stats().kept;
      images.evicted += simulation.image_stats().evicted;
      images.orphaned += simulation.image_stats().orphaned;
      images.refused += simulation.image_stats().refused;
      images.restored += simulation.image_stats().restored;
    }
  }
  // The schedule reaches what it is for.
  EXPECT_GT(index.evicted, 100);
  EXPECT_GT(index.duplicates, 100);
  EXPECT_GT(images.kept, 100);
  EXPECT_GT(images.evicted, 100);
  EXPECT_GT(images.orphaned, 50);
  EXPECT_GT(images.refused, 50);
  EXPECT_GT(images.restored, 50);
}

}  // namespace
}  // namespace folio
