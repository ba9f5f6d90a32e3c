// One choice of one request on its way through the engine. Owned by the scheduler; the engine's thread alone touches
// it.
#pragma once

#include <optional>

#include "cache/block_hash.h"
#include "cache/state_transfer.h"
#include "engine/logit_lists.h"
#include "engine/request.h"

namespace folio {

enum class RequestStatus : uint8_t {
  kWaiting,   // no slot, no pages; after a preemption perhaps a PausedRun
  kRunning,   // has both
  kFinished,  // has neither; its finish has been reported
};

// What is left of the run of a preempted choice while it waits: an image of its STATE, and the pages before it.
struct PausedRun {
  struct Page {
    int32_t page = 0;
    uint64_t content = 0;  // PagePool::content as it was left
    bool kept = false;     // by the image, because the prefix index does not hold it; others may lose their content
  };
  ImageId image = 0;
  std::vector<Page> pages;  // of the positions before RequestState::computed
};

// What the head said about the prompt's tokens 1 .. n-1.
struct PromptRows {
  std::vector<float> logprobs;
  std::vector<TopLogprob> top;  // as many for each as the request asks for
};

struct RequestState {
  RequestState(RequestId request_id, std::shared_ptr<const Request> the_request, int32_t the_choice, int32_t block_size)
      : id(request_id),
        request(std::move(the_request)),
        choice(the_choice),
        tokens(request->prompt),
        hashes(block_size, {}, block_hash, salt_seed(request->cache_salt)),
        sampling(request->sampling),
        lists(*request) {
    sampling.seed += static_cast<uint64_t>(choice);
  }

  RequestId id;  // of this choice
  std::shared_ptr<const Request> request;
  int32_t choice;
  RequestStatus status = RequestStatus::kWaiting;
  bool cancelled = false;

  std::vector<int32_t> tokens;     // prompt and what has been sampled and reached the host
  int64_t computed = 0;            // positions whose rows have been enqueued
  int32_t in_flight = 0;           // samples enqueued that have not reached the host
  int32_t spans_in_flight = 0;     // scheduled spans whose step has not come back
  std::vector<int32_t> drafts;     // proposed behind the last of `tokens`
  std::vector<float> confidences;  // of the drafts (model/step.h)
  int32_t verify_length = 0;       // drafts that the next step verifies if nothing is in their way
  // [drafts, kDraftCandidates] what they were drawn from; empty: they are greedy
  std::vector<DraftCandidate> draft_candidates;
  int64_t prompt_length() const { return std::ssize(request->prompt); }
  int64_t generated() const { return std::ssize(tokens) - prompt_length(); }
  // Rows that must run before the next sample: 1 in decode, more while the host knows tokens that have not run.
  int64_t rows_due() const { return std::ssize(tokens) + in_flight - computed; }

  int32_t slot = -1;
  std::vector<int32_t> pages;  // block table
  BlockHashes hashes;
  Chain chain = Chain::kExact;  // of the blocks that it publishes
  int64_t published = 0;        // blocks of it that the prefix index has been told
  Rungs rungs;
  std::optional<PausedRun> paused;  // of a preempted one whose state was kept; everything else here is then as it was
  // Whose private image it is: siblings share a request's id.
  RequestId image_owner() const { return id * kMaxChoices + choice; }

  // Constants of the run (ops/rows.h, RequestSpan). decoder_start is fixed at submission and kept over preemptions.
  int64_t decoder_start = 0;
  int64_t window_floor = 0;
  int64_t write_from = 0;
  bool restart = false;  // the next span begins the slot anew

  SamplingParams sampling;
  LogitLists lists;
  RequestState* parent = nullptr;  // sibling whose prefill this one shares; it is in no queue until that is done
  // Shared with the siblings that share the prefill; a run that begins anew collects them anew.
  std::shared_ptr<PromptRows> prompt_rows = std::make_shared<PromptRows>();
  Usage usage;

  // The next draw depends on the last token, by a policy or by penalties: no two of its steps are in flight.
  bool needs_host() const { return !request->policies.empty() || lists.follow_tokens(); }
  TokenPolicy* policy() const {
    return request->policies.empty() ? nullptr : request->policies[static_cast<size_t>(choice)].get();
  }
  bool wants_exact() const { return request->exact || request->needs_every_row(); }
};

}  // namespace folio
