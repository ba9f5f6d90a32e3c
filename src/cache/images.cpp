#include "cache/images.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

int64_t image_bytes(const Geometry& geometry, ImageKind kind) {
  int64_t bytes = 0;
  const auto ranges = kind == ImageKind::kBoundary ? geometry.image_ranges(0) : geometry.state_ranges(0);
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  return bytes;
}

int32_t image_units(const Geometry& geometry, ImageKind kind) {
  return static_cast<int32_t>((image_bytes(geometry, kind) + geometry.page_bytes() - 1) / geometry.page_bytes());
}

void check_image(const Geometry& geometry, const StateImage& image, int32_t pages) {
  if (image.identity != geometry.identity()) {
    fail(ErrorCode::kInvalidArgument, "state image of another cache layout: it is of ", image.identity,
         ", this process uses ", geometry.identity());
  }
  const int64_t bytes = image_bytes(geometry, image.kind);
  if (image.bytes != bytes || std::ssize(image.units) != image_units(geometry, image.kind)) {
    fail(ErrorCode::kInvalidArgument, "state image of ", image.bytes, " bytes in ", image.units.size(),
         " units: this layout's has ", bytes, " bytes in ", image_units(geometry, image.kind));
  }
  std::vector<int32_t> sorted = image.units;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0 || sorted.back() >= pages) {
    fail(ErrorCode::kInvalidArgument, "state image in unit ", sorted.front() < 0 ? sorted.front() : sorted.back(),
         ", which is none of the ", pages, " pages");
  }
  const auto repeated = std::adjacent_find(sorted.begin(), sorted.end());
  if (repeated != sorted.end()) fail(ErrorCode::kInvalidArgument, "state image that holds unit ", *repeated, " twice");
}

ImageStore::ImageStore(const Geometry& geometry, PagePool& pages) : geometry_(geometry), pages_(pages) {}

std::optional<ImageId> ImageStore::begin_store(const ImageKey& key) {
  const auto present = by_prefix_.find(key.prefix);
  if (present != by_prefix_.end() && (present->second.exact || !key.exact)) {
    ++stats_.duplicates;
    return std::nullopt;
  }
  const auto id = reserve(ImageKind::kBoundary);
  if (!id) return std::nullopt;
  at(*id).key = key;
  // Only now: reserving may have evicted the image that this one replaces.
  Named& named = by_prefix_[key.prefix];
  const auto replaced = named.encoder;
  (key.exact ? named.exact : named.encoder) = id;
  if (replaced) drop(*replaced);
  return id;
}

std::optional<ImageId> ImageStore::begin_private(RequestId request, std::vector<int32_t> kept) {
  FOLIO_CHECK(!by_request_.contains(request), "request ", request, " has an image already");
  for (const int32_t page : kept) FOLIO_CHECK(pages_.references(page) > 0, "page ", page, " is not in use");
  const auto id = reserve(ImageKind::kPrivate);
  if (!id) return std::nullopt;
  Record& record = at(*id);
  record.request = request;
  record.kept = std::move(kept);
  by_request_[request] = *id;
  return id;
}

void ImageStore::complete_store(ImageId id) {
  Record& record = at(id);
  FOLIO_CHECK(record.writing, "image ", id, " is written already");
  record.writing = false;
  if (record.state == ImageState::kEvicting) {
    end_if_idle(id);
    return;
  }
  record.state = ImageState::kReady;
  ++stats_.kept;
  make_evictable(record, id);
}

std::optional<ImageId> ImageStore::find(const BlockHash& prefix, bool exact) const {
  const auto named = by_prefix_.find(prefix);
  if (named == by_prefix_.end()) return std::nullopt;
  const auto ready = [&](const std::optional<ImageId>& id) { return id && state(*id) == ImageState::kReady; };
  if (ready(named->second.exact)) return named->second.exact;
  if (!exact && ready(named->second.encoder)) return named->second.encoder;
  return std::nullopt;
}

std::optional<ImageId> ImageStore::find_private(RequestId request) const {
  const auto found = by_request_.find(request);
  if (found == by_request_.end() || state(found->second) != ImageState::kReady) return std::nullopt;
  return found->second;
}

std::vector<int32_t> ImageStore::take_kept_pages(ImageId id) { return std::exchange(at(id).kept, {}); }

void ImageStore::pin(ImageId id) {
  Record& record = at(id);
  FOLIO_CHECK(record.state == ImageState::kReady, "image ", id, " is not ready");
  ++record.pins;
  ++stats_.restored;
  keep(record);
}

void ImageStore::unpin(ImageId id) {
  Record& record = at(id);
  FOLIO_CHECK(record.pins > 0, "image ", id, " is not pinned");
  if (--record.pins > 0) return;
  if (record.state == ImageState::kEvicting) {
    end_if_idle(id);
  } else {
    make_evictable(record, id);
  }
}

bool ImageStore::evict_one(std::optional<ImageId> spared) {
  const auto victim = std::ranges::find_if(evictable_, [&](ImageId id) { return id != spared; });
  if (victim == evictable_.end()) return false;
  ++stats_.evicted;
  drop(*victim);
  return true;
}

int64_t ImageStore::reclaimable(std::optional<ImageId> spared) const {
  int64_t pages = 0;
  for (const ImageId id : evictable_) {
    if (id == spared) continue;
    const Record& record = at(id);
    pages += std::ssize(record.image.units) +
             std::ranges::count_if(record.kept, [&](int32_t page) { return pages_.references(page) == 1; });
  }
  return pages;
}

void ImageStore::unindex(const BlockHash& prefix) {
  const auto found = by_prefix_.find(prefix);
  if (found == by_prefix_.end()) return;
  const Named named = found->second;
  for (const auto& id : {named.exact, named.encoder}) {
    if (!id) continue;
    ++stats_.orphaned;
    drop(*id);
  }
}

void ImageStore::drop(ImageId id) {
  Record& record = at(id);
  if (record.state == ImageState::kEvicting) return;
  record.state = ImageState::kEvicting;
  keep(record);
  if (record.request) {
    by_request_.erase(*record.request);
  } else {
    const auto named = by_prefix_.find(record.key.prefix);
    auto& place = record.key.exact ? named->second.exact : named->second.encoder;
    if (place == id) place.reset();
    if (!named->second.exact && !named->second.encoder) by_prefix_.erase(named);
  }
  end_if_idle(id);
}

void ImageStore::clear() {
  std::vector<ImageId> ids;
  for (const auto& [id, record] : records_) {
    if (!record.request) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const ImageId id : ids) drop(id);
}

ImageStore::Record& ImageStore::at(ImageId id) {
  const auto record = records_.find(id);
  FOLIO_CHECK(record != records_.end(), "no image ", id);
  return record->second;
}

const ImageStore::Record& ImageStore::at(ImageId id) const { return const_cast<ImageStore*>(this)->at(id); }

std::optional<ImageId> ImageStore::reserve(ImageKind kind) {
  const int32_t count = image_units(geometry_, kind);
  if (pages_.available() < count && pages_.available() + reclaimable() < count) {
    ++stats_.refused;
    return std::nullopt;
  }
  while (pages_.available() < count) FOLIO_CHECK(evict_one());
  const ImageId id = next_++;
  // Evicting cached pages may unindex images and so change every table here; nothing is held across the call.
  auto units = pages_.allocate_units(id, count);
  FOLIO_CHECK(units.has_value());
  records_[id].image = {.identity = geometry_.identity(),
                        .kind = kind,
                        .bytes = image_bytes(geometry_, kind),
                        .units = std::move(*units)};
  return id;
}

void ImageStore::make_evictable(Record& record, ImageId id) {
  record.evictable = evictable_.insert(evictable_.end(), id);
}

void ImageStore::keep(Record& record) {
  if (!record.evictable) return;
  evictable_.erase(*record.evictable);
  record.evictable.reset();
}

void ImageStore::end_if_idle(ImageId id) {
  const Record& record = at(id);
  if (record.writing || record.pins > 0) return;
  pages_.release_units(id, record.image.units);
  for (auto page = record.kept.rbegin(); page != record.kept.rend(); ++page) pages_.release(*page);
  records_.erase(id);
}

}  // namespace folio
