// How a request comes to the window state at a prefix hit: from an image of it (copy), or by running a block again
// (replay). One interface for both (spec runtime 2.10, 3.7, 4.2); the scheduler asks it where to resume, where to cut
// prefill chunks and when to keep an image.
#pragma once

#include <memory>
#include <optional>

#include "cache/images.h"
#include "cache/prefix_index.h"

namespace folio {

enum class StateTransferKind : uint8_t { kCopy, kReplay };

// Where a request resumes.
struct Resume {
  int64_t hit = 0;               // tokens that count as cached; a multiple of the block size
  int64_t start = 0;             // first position that the first forward runs; the cursor stands there
  int64_t write_from = 0;        // groups that end at or before this position are in shared pages: not written again
  std::optional<ImageId> image;  // to restore before the first forward
  int32_t history = 0;           // tokens before `start` whose ids the n-gram history is rebuilt from; 0 with an image
  int64_t blocks(int32_t block_size) const { return hit / block_size; }  // pages of the match to claim
};

// --- The ladder: at which positions images are taken (spec runtime 3.7). Pure arithmetic. ---

struct Ladder {
  int64_t interval = 0;    // a multiple of `block`; 0 = no rungs but demanded ones
  int32_t block = 128;     // tokens of a PAGE
  int64_t leave_room = 1;  // tokens of a prompt that must come after its last rung
};

// The largest multiple of `block` that is at most `requested`; 0 turns the ladder off.
int64_t snap_interval(int64_t requested, int32_t block);

// One request's place on the ladder.
struct Rungs {
  int64_t demand = 0;     // an extra rung for this request, once: where a missing image cut its hit short; 0 = none
  int64_t last_kept = 0;  // position of its latest image, or where it resumed
  // An image was kept, or refused: the next one is an interval away.
  void passed(int64_t position) {
    last_kept = position;
    if (demand <= position) demand = 0;
  }
};

// Where a prefill chunk that could run positions begin .. end-1 of a prompt of `total` tokens ends: at the demanded
// rung or at the last interval rung inside, whichever is first, else at `end`. Always above begin.
int64_t cut_chunk(const Ladder& ladder, const Rungs& rungs, int64_t begin, int64_t end, int64_t total);
// Whether the state at `position` is worth an image: after a prefill chunk, at a rung; in decode, which cannot aim, at
// any block boundary at least an interval past the last one kept.
bool keep_after_prefill(const Ladder& ladder, const Rungs& rungs, int64_t position);
bool keep_in_decode(const Ladder& ladder, const Rungs& rungs, int64_t position);

// --- The interface. ---

class StateTransfer {
 public:
  struct Stats {
    int64_t resumed = 0;                   // by count(): requests that resumed behind a hit
    int64_t demands_recorded = 0;          // hits cut short for want of an image
    int64_t demands_declined_no_room = 0;  // of these, without a rung: request and image do not fit together
    int64_t chunks_cut_for_demand = 0;
    int64_t chunks_cut_for_interval = 0;
  };

  virtual ~StateTransfer() = default;
  virtual StateTransferKind kind() const = 0;

  // Where a request resumes that found `match`; hit 0 without one. `exact`: only where the state is that of a run
  // without any replay. Changes nothing: the caller restores `image` (StateCopies::restore pins it) before it
  // allocates, and so before any page or image can be evicted.
  virtual Resume resume(const PrefixMatch& match, bool exact) const = 0;
  // Sets the rungs of a request admitted with `resume`, which needs `fresh_pages` beyond those of its hit.
  virtual Rungs admit(const PrefixMatch& match, const Resume& resume, int64_t fresh_pages) = 0;
  // cut_chunk and keep_* under this transfer's ladder; replay cuts and keeps nothing. cut() counts.
  virtual int64_t cut(const Rungs& rungs, int64_t begin, int64_t end, int64_t total) = 0;
  virtual bool keep(const Rungs& rungs, int64_t position, bool decoding) const = 0;

  const Stats& stats() const { return stats_; }

 protected:
  Stats stats_;
};

// Images every `ladder.interval` tokens and where they were missed. `pages` and `images` must outlive it.
std::unique_ptr<StateTransfer> make_copy_transfer(const Geometry& geometry, const Ladder& ladder, PagePool& pages,
                                                  ImageStore& images);

// Why encoder replay cannot work under a layout: nothing if it can. One PAGE run again must fill a window, so a PAGE
// holds at least window - 1 tokens.
std::optional<std::string> replay_refusal(const Geometry& geometry);
// No images: every hit resumes one block below itself, with `history_tokens` (or as many as there are) before that for
// the n-gram history. Exact requests never resume. Throws Error(kInvalidArgument) with replay_refusal().
std::unique_ptr<StateTransfer> make_replay_transfer(const Geometry& geometry, int32_t history_tokens);

}  // namespace folio
