// How a step describes its rows to an op: plain structs over fixed arrays, no request object (docs/architecture.md,
// "The step law"). A row is one token position of one request. Rows of a request are consecutive and ascending in
// position; requests may come in any order and any number.
#pragma once

#include <cstdint>

namespace folio {

// Longest n-gram history that a slot remembers; engram_max_ngram_size may be at most one more.
constexpr int kMaxEngramHistory = 7;
// The compressed id of a position that n-grams may not look through: inside an image span, or before the first token.
constexpr int32_t kDeadId = -1;

// Where a row's input id or embedding comes from.
enum class RowSource : int32_t {
  kToken,      // value = token id, known to the host
  kLastToken,  // the last token that the row's slot sampled
  kEmbedding,  // value = row of the step's embedding buffer
};

struct RowInput {
  RowSource source = RowSource::kToken;
  int32_t value = 0;
};

// One request's part of a step. Positions in it are constants of the request, not of the step.
struct RequestSpan {
  int32_t first_row = 0;  // its rows are first_row .. first_row + num_rows - 1
  int32_t num_rows = 0;
  int32_t slot = 0;          // STATE slot
  int32_t sampled_row = -1;  // index among the head rows whose sample becomes the slot's last token; -1: none

  // A slot that begins anew: its cursor is set to `start`, with the tokens before it, newest first, -1 where there is
  // none or an image position.
  int32_t restart = 0;  // 1: begins
  int32_t start = 0;
  int32_t history[kMaxEngramHistory] = {-1, -1, -1, -1, -1, -1, -1};

  // Bounded replay (spec runtime 4). No layer sees a window position below window_floor; decoder layers run positions
  // from decoder_start on and see none below it; compressed entries that end below write_from are in the cache already.
  int32_t window_floor = 0;
  int32_t decoder_start = 0;
  int32_t write_from = 0;

  // Verification (ops/draft.h): its last num_drafts rows are drafts behind one known token.
  int32_t num_drafts = 0;
  int32_t forced_accepts = -1;  // for measurements: so many drafts are accepted, whatever was sampled; -1: not forced
};

// The host part of a step: shapes by value, contents in staging whose addresses never change. Immutable once enqueued.
struct StepInputs {
  int32_t num_rows = 0;
  int32_t num_requests = 0;
  int32_t num_head_rows = 0;
  const RowInput* row_inputs = nullptr;  // [num_rows]
  const uint8_t* row_image = nullptr;    // [num_rows] 1 = inside an image span: DEAD for Engram, bias_vl for routing
  const int32_t* row_request = nullptr;  // [num_rows] index of the row's span
  const RequestSpan* spans = nullptr;    // [num_requests]
  const int32_t* head_rows = nullptr;    // [num_head_rows] rows that go through the head, ascending
  // The rows that the decoder layers run: ascending, and at least the head rows. Spans and requests as above, over
  // these rows in their order.
  int32_t num_decoder_rows = 0;
  const int32_t* decoder_rows = nullptr;       // [num_decoder_rows]
  const int32_t* decoder_request = nullptr;    // [num_decoder_rows]
  const RequestSpan* decoder_spans = nullptr;  // [num_requests]
  const int32_t* head_in_decoder = nullptr;    // [num_head_rows] place of each head row among the decoder rows
  const int32_t* page_tables = nullptr;        // [num_requests, page_table_stride] PAGE ids, oldest first
  int32_t page_table_stride = 0;
  const uint16_t* embeddings = nullptr;  // [any, hidden] bf16 bits; read by rows of source kEmbedding
};

// The requests of a step that draft when it has been committed, `width` rows each.
struct DraftInputs {
  int32_t num_requests = 0;
  int32_t width = 0;
  const RequestSpan* spans = nullptr;    // [num_requests] over the draft rows; slot and the bounds of the window
  const int32_t* row_request = nullptr;  // [num_requests * width] index of the row's span

  int32_t rows() const { return num_requests * width; }
};

// Cosines and sines of one rotation kind: [num_rows][pairs][2], cosine first.
using RopeTable = const float*;

// The device part of a step: what begin_step derives from the inputs and the slots' STATE. Every op that needs to know
// about rows takes this.
struct Rows {
  int32_t count = 0;
  int32_t num_requests = 0;
  const RequestSpan* spans = nullptr;    // [num_requests]
  const int32_t* request = nullptr;      // [count] index of the row's span
  const int32_t* position = nullptr;     // [count] position of the row in its request
  const uint8_t* image = nullptr;        // [count]
  const int32_t* page_tables = nullptr;  // [num_requests, page_table_stride]
  int32_t page_table_stride = 0;

  // First position that a row of span `request` sees in its window rings, beside the window's own length.
  int32_t window_floor(int32_t request_index, bool decoder) const {
    const RequestSpan& span = spans[request_index];
    return decoder && span.decoder_start > span.window_floor ? span.decoder_start : span.window_floor;
  }
  // Entries of a ratio-`ratio` plane that row r may see: those whose last token is at or before it (spec 6.6).
  int32_t visible(int32_t r, int32_t ratio) const { return (position[r] + 1) / ratio; }
  // The entry that row r completes and that is not in the cache already, or -1.
  int32_t completed(int32_t r, int32_t ratio) const {
    if ((position[r] + 1) % ratio != 0 || position[r] < spans[request[r]].write_from) return -1;
    return position[r] / ratio;
  }
};

// What a slot remembers between steps beside its rings; lives in STATE.
struct SlotCursor {
  int64_t position = 0;                     // tokens whose state is in the slot
  int32_t last_token = 0;                   // last sampled id
  int32_t history[kMaxEngramHistory] = {};  // compressed ids of the latest positions, newest first, kDeadId = none
};

}  // namespace folio
