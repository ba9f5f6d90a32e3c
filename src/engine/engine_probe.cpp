#include "engine/engine_probe.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

EngineProbe::EngineProbe(const ModelFiles& files, const RunnerOptions& options, const EngineConfig& config,
                         std::unique_ptr<Ops> ops)
    : config_(config), runner_(files, options, std::move(ops)), core_(runner_, config), recorder_(runner_) {
  core_.blocks().watch(&recorder_);
}

RequestId EngineProbe::submit(Request request) {
  const auto sink = std::make_shared<AnswerRecorder>(request.choices);
  request.sink = sink;
  const auto shared = std::make_shared<const Request>(std::move(request));
  const auto id = static_cast<RequestId>(sent_.size());
  core_.submit(id, shared);
  sent_.push_back({.id = id, .request = shared, .sink = sink});
  return id;
}

void EngineProbe::cancel(RequestId id) {
  core_.cancel(id);
  sent_[static_cast<size_t>(id)].cancelled = true;
}

bool EngineProbe::drain(int most_steps) {
  int steps = 0;
  while (!core_.empty()) {
    core_.step();
    if (++steps > most_steps) return false;
  }
  while (core_.step()) {  // copies that are still queued
  }
  return true;
}

const RecordedAnswer& EngineProbe::answer(RequestId id, int32_t choice) const {
  return sent_[static_cast<size_t>(id)].sink->answer(choice);
}

RequestState* EngineProbe::state(RequestId id, int32_t choice) {
  const auto& states = core_.scheduler().states();
  const auto found =
      std::ranges::find_if(states, [&](const auto& state) { return state->id == id && state->choice == choice; });
  return found == states.end() ? nullptr : found->get();
}

SlotCursor EngineProbe::cursor(int32_t slot) {
  const Geometry& geometry = runner_.geometry();
  SlotCursor cursor;
  runner_.device().download(reinterpret_cast<std::byte*>(&cursor),
                            geometry.cursors(runner_.states().data()) + slot * geometry.state_bytes(), sizeof cursor);
  runner_.device().record()->wait();
  return cursor;
}

std::vector<std::string> EngineProbe::leaks() {
  std::vector<std::string> found;
  if (!core_.blocks().idle()) found.emplace_back("a page or a slot is still in use");
  recorder_.check_published_pages();
  core_.blocks().clear_cache();
  while (core_.step()) {
  }
  const int32_t vacant = runner_.pages().vacant(), pages = runner_.pages().capacity();
  if (vacant != pages) found.push_back(concat(pages - vacant, " pages are not vacant after the cache was cleared"));
  if (core_.blocks().images().size() > 0) found.push_back(concat(core_.blocks().images().size(), " images are left"));
  return found;
}

AnswerCheck EngineProbe::check(SoloRunner& solo) {
  AnswerCheck check(solo, recorder_,
                    {.eos = runner_.config().eos_token_id,
                     .max_model_len = runner_.max_model_len(),
                     .compare_pages = config_.poison});
  check.check(sent_);
  return check;
}

}  // namespace folio
