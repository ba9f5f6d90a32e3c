#include "engine/block_manager.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

std::unique_ptr<StateTransfer> make_transfer(const Geometry& geometry, const EngineConfig& config, PagePool& pages,
                                             ImageStore& images, int32_t history_tokens) {
  if (config.encoder_replay) return make_replay_transfer(geometry, history_tokens);
  const int32_t block = geometry.inputs().block_size;
  // With decoder replay a resumed request must still run its last window of rows.
  const int64_t room = config.decoder_replay ? geometry.inputs().window : 1;
  const Ladder ladder{
      .interval = snap_interval(config.state_checkpoint_interval, block), .block = block, .leave_room = room};
  return make_copy_transfer(geometry, ladder, pages, images);
}

}  // namespace

BlockManager::BlockManager(Device& device, const Geometry& geometry, PagePool& pages, StatePool& states,
                           const EngineConfig& config, int32_t history_tokens)
    : geometry_(geometry),
      config_(config),
      pages_(pages),
      states_(states),
      index_(pages, geometry.inputs().block_size),
      images_(geometry, pages),
      copies_(device, geometry, pages, states, images_),
      transfer_(make_transfer(geometry, config, pages, images_, history_tokens)) {
  index_.set_eviction_hook([this](const BlockHash& hash) { images_.unindex(hash); });
  if (!config.poison) return;
  device.fill(pages.data(), 0xff, pages.bytes());
  device.fill(states.data(), 0xff, states.bytes());
  pages_.set_discard_hook([this](int32_t page) { copies_.poison_page(page); });
}

BlockManager::~BlockManager() {
  pages_.set_discard_hook(nullptr);
  pages_.reset();
  states_.ids().reset();
}

std::optional<std::string> BlockManager::refusal(const RequestState& state) const {
  const int64_t needed = geometry_.pages_for(std::ssize(state.tokens) + 1);
  if (needed <= pages_.capacity()) return std::nullopt;
  return concat("needs ", needed, " pages for ", state.tokens.size(), " tokens, the pool has ", pages_.capacity(),
                ": raise --memory-budget or shorten the prompt");
}

void BlockManager::resume_at(RequestState& state, const Resume& resume) {
  state.computed = resume.start;
  state.window_floor = resume.image ? 0 : resume.start;
  state.write_from = resume.write_from;
  state.restart = !resume.image;
  const bool replayed = resume.hit > 0 && !resume.image;
  state.chain = replayed ? Chain::kDownstream : Chain::kExact;
  state.published = resume.hit / geometry_.inputs().block_size;
  if (state.generated() == 0) {
    state.usage.cached_tokens = resume.hit;
    state.usage.encoder_replay = replayed;
  }
  state.usage.plans.push_back({.start = resume.start,
                               .resume = resume.hit,
                               .decoder_start = state.decoder_start,
                               .known = std::ssize(state.tokens)});
}

int32_t BlockManager::take_slot() {
  const auto slot = states_.ids().allocate();
  FOLIO_CHECK(slot.has_value());
  return *slot;
}

int32_t BlockManager::take_page() {
  const auto page = pages_.allocate();
  FOLIO_CHECK(page.has_value());
  return *page;
}

bool BlockManager::make_room(std::span<const int32_t> claimed, int64_t fresh, std::optional<ImageId> spared) {
  if (pages_.covers(claimed, fresh)) return true;
  if (!pages_.covers(claimed, fresh - images_.reclaimable(spared))) return false;
  while (!pages_.covers(claimed, fresh)) FOLIO_CHECK(images_.evict_one(spared));
  return true;
}

bool BlockManager::admit(RequestState& state) {
  FOLIO_CHECK(state.slot < 0 && state.pages.empty());
  if (states_.ids().available() == 0) return false;
  if (state.paused) {
    const PausedRun paused = *state.paused;
    const bool whole = is_whole(paused);
    // The image may have been reserved for the step that is being put together.
    if (whole && images_.state(paused.image) == ImageState::kCopying) return false;
    if (whole && go_on(state, paused)) return true;
    if (!whole) {
      ++stats_.paused_lost;
      begin_anew(state);
    }
  }

  state.hashes.extend(state.tokens);
  // A request that has already answered must go on as it began: replay would change its bits.
  const bool exact = state.wants_exact() || (config_.encoder_replay && state.generated() > 0);
  PrefixMatch match;
  Resume resume;
  if (config_.prefix_cache && !state.request->needs_every_row()) {
    match = index_.match(state.hashes, state.tokens, exact);
    PrefixMatch usable = match;
    if (!config_.encoder_replay && state.decoder_start > 0) {
      // An image holds no decoder rows of this request: it resumes before them.
      const auto blocks = static_cast<size_t>(state.decoder_start / geometry_.inputs().block_size);
      if (usable.hashes.size() > blocks) usable.hashes.resize(blocks);
    }
    resume = transfer_->resume(usable, config_.encoder_replay ? exact : state.decoder_start == 0);
  }
  const int64_t shared = resume.blocks(geometry_.inputs().block_size);
  const std::span<const int32_t> claimed(match.pages.data(), static_cast<size_t>(shared));
  const int64_t fresh = geometry_.pages_for(std::ssize(state.tokens) + 1) - shared;
  if (!make_room(claimed, fresh, resume.image)) {
    // With nobody running no room will come by itself: the next attempt finds all of it.
    while (slots_used() == 0 && images_.evict_one()) {
    }
    return false;
  }
  if (state.paused) {
    ++stats_.paused_lost;
    begin_anew(state);
  }
  state.rungs = transfer_->admit(match, resume, fresh);
  state.slot = take_slot();
  if (resume.image) copies_.restore(*resume.image, state.slot, state.image_owner());
  for (const int32_t page : claimed) {
    pages_.claim(page);
    state.pages.push_back(page);
  }
  index_.record(std::ssize(state.tokens), match, resume.hit);
  resume_at(state, resume);
  if (watcher_ != nullptr) watcher_->admitted(state);
  return true;
}

bool BlockManager::fork(const RequestState& parent, RequestState& child) {
  const int64_t full = parent.computed / geometry_.inputs().block_size;
  const bool partial = full * geometry_.inputs().block_size < parent.computed;
  if (states_.ids().available() == 0 || pages_.available() < (partial ? 1 : 0)) return false;
  child.slot = take_slot();
  for (int64_t i = 0; i < full; ++i) {
    pages_.claim(parent.pages[static_cast<size_t>(i)]);
    child.pages.push_back(parent.pages[static_cast<size_t>(i)]);
  }
  if (partial) {
    child.pages.push_back(take_page());
    const StateCopies::Move page{.source = parent.pages[static_cast<size_t>(full)], .destination = child.pages.back()};
    copies_.copy_pages({&page, 1});
  }
  const StateCopies::Move slot{.source = parent.slot, .destination = child.slot};
  copies_.move_slots({&slot, 1});
  child.computed = parent.computed;
  child.decoder_start = parent.decoder_start;
  child.window_floor = parent.window_floor;
  child.write_from = parent.write_from;
  child.restart = parent.restart;  // of a prompt of one token nothing has run yet
  child.chain = parent.chain;
  child.published = full;
  child.hashes.extend(child.tokens);
  child.rungs = parent.rungs;
  child.usage = parent.usage;
  child.prompt_rows = parent.prompt_rows;
  if (watcher_ != nullptr) watcher_->forked(parent, child);
  return true;
}

bool BlockManager::grow(RequestState& state, int64_t end) {
  while (std::ssize(state.pages) < geometry_.pages_for(end)) {
    auto page = pages_.allocate();
    while (!page && images_.evict_one()) page = pages_.allocate();
    if (!page) return false;
    state.pages.push_back(*page);
  }
  return true;
}

int64_t BlockManager::cut(const RequestState& state, int64_t begin, int64_t end) {
  if (!config_.prefix_cache) return end;
  return transfer_->cut(state.rungs, begin, end, std::ssize(state.tokens));
}

void BlockManager::computed(RequestState& state, int64_t end) {
  if (!config_.prefix_cache) return;
  const int64_t block = geometry_.inputs().block_size;
  state.hashes.extend(state.tokens);
  for (; state.published < std::min(end / block, state.hashes.size()); ++state.published) {
    const int32_t page = state.pages[static_cast<size_t>(state.published)];
    if (pages_.published(page)) continue;
    const auto result = index_.publish(state.hashes, state.tokens, state.chain, state.published, page);
    if (watcher_ != nullptr && result.canonical == page) watcher_->published(state, state.published, page);
  }
}

void BlockManager::keep_image(RequestState& state) {
  const int64_t block = geometry_.inputs().block_size, position = state.computed;
  if (!config_.prefix_cache || position % block != 0 || position == state.rungs.last_kept) return;
  state.hashes.extend(state.tokens);
  if (position / block > state.hashes.size()) return;
  if (!transfer_->keep(state.rungs, position, position > state.prompt_length())) return;
  // The prefix itself may be published a step later; an image is never found before it.
  const ImageKey key{.prefix = state.hashes.prefix(state.chain, position), .exact = state.decoder_start == 0};
  if (const auto image = images_.begin_store(key)) copies_.store(*image, state.slot);
  state.rungs.passed(position);
}

bool BlockManager::wants_image(const RequestState& state, int64_t position) const {
  return config_.prefix_cache && transfer_->keep(state.rungs, position, true);
}

void BlockManager::release(RequestState& state) {
  if (state.paused) begin_anew(state);
  if (state.slot < 0) return;
  copies_.forget_slot(state.slot);
  for (auto page = state.pages.rbegin(); page != state.pages.rend(); ++page) pages_.release(*page);
  state.pages.clear();
  states_.ids().release(state.slot);
  if (config_.poison) copies_.poison_slot(state.slot);
  state.slot = -1;
}

void BlockManager::preempt(RequestState& state) {
  ++state.usage.preemptions;
  auto paused = pause(state);
  release(state);
  state.paused = std::move(paused);
  if (!state.paused) begin_anew(state);
}

// The image is reserved while the pages of the request are in use, so that they are not what makes room for it.
std::optional<PausedRun> BlockManager::pause(RequestState& state) {
  if (state.restart || state.computed == 0) return std::nullopt;  // its slot holds nothing yet
  PausedRun paused;
  std::vector<int32_t> kept;
  for (int64_t i = 0; i < geometry_.pages_for(state.computed); ++i) {
    const int32_t page = state.pages[static_cast<size_t>(i)];
    const bool keep = !pages_.published(page);
    if (keep) kept.push_back(page);
    paused.pages.push_back({.page = page, .content = pages_.content(page), .kept = keep});
  }
  const auto image = images_.begin_private(state.image_owner(), kept);
  if (!image) return std::nullopt;
  paused.image = *image;
  copies_.store(*image, state.slot);
  std::erase_if(state.pages, [&](int32_t page) { return std::ranges::find(kept, page) != kept.end(); });
  ++stats_.paused;
  return paused;
}

bool BlockManager::is_whole(const PausedRun& paused) const {
  return images_.contains(paused.image) && std::ranges::all_of(paused.pages, [&](const PausedRun::Page& left) {
           return left.kept || pages_.content(left.page) == left.content;
         });
}

bool BlockManager::go_on(RequestState& state, const PausedRun& paused) {
  std::vector<int32_t> claimed;
  for (const PausedRun::Page& left : paused.pages) {
    if (!left.kept) claimed.push_back(left.page);
  }
  const int64_t fresh = geometry_.pages_for(std::ssize(state.tokens) + 1) - std::ssize(paused.pages);
  if (!make_room(claimed, fresh, paused.image)) return false;
  images_.take_kept_pages(paused.image);
  state.slot = take_slot();
  copies_.restore(paused.image, state.slot, state.image_owner());
  for (const int32_t page : claimed) pages_.claim(page);
  for (const PausedRun::Page& left : paused.pages) state.pages.push_back(left.page);
  state.paused.reset();
  ++stats_.resumed;
  return true;
}

void BlockManager::begin_anew(RequestState& state) {
  if (state.paused && images_.contains(state.paused->image)) images_.drop(state.paused->image);
  state.paused.reset();
  state.computed = 0;
  state.published = 0;
  state.rungs = {};
  state.prompt_rows = std::make_shared<PromptRows>();
}

bool BlockManager::idle() const {
  return pages_.in_use() == pages_.units() && states_.ids().available() == states_.capacity();
}

void BlockManager::clear_cache() {
  images_.clear();
  index_.clear();
}

}  // namespace folio
