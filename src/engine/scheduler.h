// Which rows run in the next step, and what becomes of their samples (spec runtime 3). First come, first served:
// decodes go first, then prefills that have begun, then admissions from the queue. When pages run out the youngest
// request is preempted. The engine's thread alone uses it (src/engine/README.md).
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/block_manager.h"
#include "engine/dynamic_verification.h"
#include "engine/replay.h"
#include "engine/speculation.h"

namespace folio {

// One request's rows of a step.
struct ScheduledSpan {
  RequestState* state = nullptr;
  int64_t begin = 0;  // positions begin .. begin + rows - 1
  int64_t rows = 0;
  bool samples = false;      // its last row is sampled
  bool prompt_rows = false;  // its other rows go through the head too, for the log-probability of the token after them
  bool decoding = false;     // one row whose id is the slot's last token
  int32_t drafts = 0;        // its last rows, which are sampled too, as is the one before them
  int32_t forced_accepts = -1;
  bool drafting = false;  // drafts when the step has been committed
};

struct ScheduledStep {
  std::vector<ScheduledSpan> spans;
  int64_t rows = 0;
  int64_t head_rows = 0;
  int64_t deltas = 0;       // biases and penalties of its draws
  bool top = false;         // a row reports its most likely ids
  int32_t draft_width = 0;  // drafts of each span that drafts
};

// What came of a step's head rows, in their order: per span its prompt rows if it wants them, then its samples.
struct StepSamples {
  const int32_t* ids = nullptr;
  const float* logprobs = nullptr;
  const TopLogprob* top = nullptr;             // [head rows, kMaxTopLogprobs]; null if no row reports any
  const int32_t* committed = nullptr;          // [spans] rows that were committed; read for spans with drafts
  const int32_t* drafts = nullptr;             // [drafting spans, draft width]
  const float* confidences = nullptr;          // of the drafts
  const DraftCandidate* candidates = nullptr;  // [drafting spans, draft width, kDraftCandidates] or null
};

class Scheduler {
 public:
  struct Stats {  // of choices
    int64_t submitted = 0;
    int64_t finished = 0, preempted = 0, refused = 0, aborted = 0;
    int64_t prefill_rows = 0, decode_rows = 0;
    SpeculationStats speculation;
  };

  // `config` is resolved. `eos` ends a request unless it ignores it.
  Scheduler(const Geometry& geometry, BlockManager& blocks, const EngineConfig& config, int64_t max_model_len,
            int32_t eos, int64_t max_head_rows, int64_t max_deltas);

  // Takes a request: one state per choice joins the queue. Requests that can never run finish at once as kRefused.
  void submit(RequestId id, const std::shared_ptr<const Request>& request);
  // Marks all choices of a request; they finish as kAbort at the next schedule() or accept().
  void cancel(RequestId id);
  void cancel_all();
  // After a bug or a failure of the device: every request that is not finished ends as kError with `message`. What they
  // hold is not given back; nothing else may be called any more but stats().
  void fail_all(const std::string& message);

  // The next step; no spans when there is nothing to run now.
  ScheduledStep schedule();
  // Takes back a step. Steps come back in the order of schedule().
  void accept(const ScheduledStep& step, const StepSamples& samples);

  // Requests that are not finished.
  bool empty() const { return states_.empty(); }
  int64_t running() const { return std::ssize(running_); }
  int64_t waiting() const { return stats_.submitted - stats_.finished - running(); }
  const Stats& stats() const { return stats_; }
  // For tests: preempts the youngest running request that has nothing in flight; false if there is none.
  bool preempt_youngest();
  // For tests: the running requests in another order of turn.
  void reverse_running();
  // For tests: all requests that are not forgotten yet, in the order of their submission.
  const std::list<std::unique_ptr<RequestState>>& states() const { return states_; }

 private:
  using States = std::list<std::unique_ptr<RequestState>>;

  void reap_cancelled();
  void erase_finished();
  void schedule_decodes(ScheduledStep& step, int64_t& budget);
  bool may_decode(const RequestState& state) const;
  // With a profile: how many of its drafts each of these requests, which decode in one step, verifies.
  void plan_drafts(const std::vector<RequestState*>& decoding);
  // How wide the blocks are that requests of the step draft; with a profile perhaps none.
  void choose_draft_width(ScheduledStep& step);
  // The decode span of a state that may have up to `room` rows, drafts included; no rows without pages for it.
  ScheduledSpan decode_span(RequestState& state, const ScheduledStep& step, int64_t room);
  int32_t usable_drafts(const RequestState& state, const ScheduledStep& step, int64_t room) const;
  // Tokens that may still come after the samples in flight.
  int64_t tokens_left(const RequestState& state) const;
  bool wants_drafts(const RequestState& state) const;
  // What became of the drafts that the request had before the span: `accepted` of them.
  void judge_drafts(const ScheduledSpan& span, int32_t accepted);
  // The drafts behind what the span has sampled, block number `block` of the step's, of `width` drafts each.
  void take_drafts(const ScheduledSpan& span, int32_t width, const StepSamples& samples, int64_t block);
  void schedule_prefills(ScheduledStep& step, int64_t& budget);
  void admit_waiting(ScheduledStep& step, int64_t& budget);
  void fork_siblings(RequestState& parent);
  bool schedule_chunk(RequestState& state, ScheduledStep& step, int64_t& budget);
  // Pages up to `end`, preempting younger requests that are not in `step` if need be.
  bool make_room(RequestState& state, int64_t end, const ScheduledStep& step);
  void preempt(RequestState& state);
  void take_prompt_rows(RequestState& state, const StepSamples& samples, int64_t head, int64_t count);
  void tell_prompt_rows(const RequestState& state);
  void take_samples(const ScheduledSpan& span, int64_t committed, const StepSamples& samples, int64_t head);
  void take_token(RequestState& state, const TokenOutput& token);
  void finish(RequestState& state, FinishReason reason, const std::string& message = "");

  const Geometry& geometry_;
  BlockManager& blocks_;
  EngineConfig config_;
  int64_t max_model_len_;
  int32_t eos_;
  int64_t max_head_rows_, max_deltas_;  // of a step
  bool tail_fits_;  // a step has room for a decoder tail beside decodes; otherwise tails are cut, which changes no bit
  States states_;   // owns all
  std::deque<RequestState*> waiting_;
  std::vector<RequestState*> running_;          // oldest first
  std::optional<DynamicVerification> dynamic_;  // with a profile
  Stats stats_;
};

}  // namespace folio
