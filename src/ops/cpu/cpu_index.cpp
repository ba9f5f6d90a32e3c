// Selection of compressed entries. Scores are linear in the keys (docs/performance.md); nothing is scored when all
// entries that may compete are taken anyway. Scores lie in scratch, the keys themselves are read in place. Many rows:
// one row per thread; few: the keys of a row are cut into parts for all threads.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/select.h"
#include "ops/ref/scalar.h"

namespace folio::cpu {
namespace {

constexpr int64_t kPart = 1024;  // keys of one task
constexpr int64_t kBatch = 128;  // keys whose addresses are found at a time

bool has_kernel(const IndexSelectArgs& args) {
  return std::find(std::begin(kIndexDims), std::end(kIndexDims), args.keys.dim) != std::end(kIndexDims);
}

const IndexKernels& index_kernels(const Kernels& kernels, RowFormat keys) {
  FOLIO_CHECK(keys == RowFormat::kFp4Index || keys == RowFormat::kFp8Index);
  return keys == RowFormat::kFp4Index ? kernels.index_fp4 : kernels.index_fp8;
}

void pad(int32_t* out, int64_t count, int64_t width) { std::fill(out + count, out + width, -1); }

}  // namespace

// Which entries of a row compete, in ascending order: all visible ones, or those in its candidate blocks.
struct Competitors {
  int64_t visible;
  int64_t count;
  const int32_t* blocks = nullptr;
  int64_t size = 0;

  explicit Competitors(int64_t all_visible) : visible(all_visible), count(all_visible) {}
  Competitors(const IndexSelectArgs& args, int32_t row) : visible(args.rows.visible(row, args.ratio)), count(visible) {
    if (args.role != CandidateRole::kRead) return;
    blocks = args.candidates + static_cast<int64_t>(row) * args.candidate_blocks;
    size = args.candidate_size;
    count = 0;
    for (int64_t i = 0; i < args.candidate_blocks && blocks[i] >= 0; ++i) {
      count += std::clamp<int64_t>(visible - blocks[i] * size, 0, size);
    }
  }
  // Only the last block can be cut short.
  int64_t entry(int64_t i) const { return blocks != nullptr ? blocks[i / size] * size + i % size : i; }
  // How many competitors from i on are neighbours.
  int64_t run(int64_t i) const { return blocks != nullptr ? size - i % size : visible - i; }
};

// Where the keys of one batch lie.
struct KeyBatch {
  const uint8_t* codes[kBatch];
  const uint8_t* scales[kBatch];
  int64_t count = 0;

  // Competitors at .. at + n - 1, by runs of neighbours in a page: the divisions of an address cost as much as a score.
  // Asks for the memory as well.
  void fill(const PagedRows& keys, const int32_t* table, const Competitors& competitors, int64_t at, int64_t n) {
    count = n;
    for (int64_t i = 0; i < n;) {
      const int64_t entry = competitors.entry(at + i);
      const int64_t in_page = keys.rows_per_page - entry % keys.rows_per_page;
      const int64_t stop = i + std::min({n - i, competitors.run(at + i), in_page});
      const RowAddress first = keys.at(table, entry);
      const auto* code = reinterpret_cast<const uint8_t*>(first.codes);
      const auto* scale = reinterpret_cast<const uint8_t*>(first.scales);
      for (; i < stop; ++i, code += keys.code_stride, scale += keys.scale_stride) {
        codes[i] = code;
        scales[i] = scale;
        for (int64_t b = 0; b < keys.code_stride; b += 64) __builtin_prefetch(code + b);
        if (i % 8 == 0) __builtin_prefetch(scale);
      }
    }
  }
};

// Scores of competitors [begin, end) of one row, to places begin .. end - 1 of `out`.
void CpuOps::score_keys(const IndexSelectArgs& args, int32_t row, const std::byte* query,
                        const Competitors& competitors, int64_t begin, int64_t end, std::byte* out) const {
  const int32_t* table =
      args.rows.page_tables + static_cast<int64_t>(args.rows.request[row]) * args.rows.page_table_stride;
  const auto fill = [&](KeyBatch& batch, int64_t at) {
    if (at < end) batch.fill(args.keys, table, competitors, at, std::min(kBatch, end - at));
  };
  const IndexKernels& kernels = index_kernels(kernels_, args.keys.format);
  const int64_t score_bytes = index_score_bytes(args.keys.format);
  // The next batch is on its way while one is scored.
  KeyBatch batches[2];
  fill(batches[0], begin);
  for (int64_t at = begin, turn = 0; at < end; at += kBatch, turn ^= 1) {
    fill(batches[turn ^ 1], at + kBatch);
    const KeyBatch& batch = batches[turn];
    kernels.score({query, args.heads, args.keys.dim, batch.codes, batch.scales, batch.count, out + at * score_bytes});
  }
}

// For traces: the scores of everything visible.
void CpuOps::trace_scores(const IndexSelectArgs& args, int32_t row, const ThreadScratch& scratch) const {
  const Competitors all(args.rows.visible(row, args.ratio));
  score_keys(args, row, scratch.index_query, all, 0, all.count, scratch.scores);
  float* out = args.scores + row * args.scores_stride;
  if (args.keys.format == RowFormat::kFp8Index) {
    std::memcpy(out, scratch.scores, static_cast<size_t>(all.count) * sizeof(float));
  } else {
    scalar::widen(reinterpret_cast<const bf16*>(scratch.scores), all.count, out);
  }
}

namespace {

// Blocks that stay in the row's candidate pool, from its ordered scores (spec 6.8): the newest always.
template <typename Score>
void write_candidates(const IndexSelectArgs& args, int32_t row, const Score* ordered, int64_t visible, Score* best) {
  int32_t* out = args.candidates + static_cast<int64_t>(row) * args.candidate_blocks;
  const int64_t size = args.candidate_size, blocks = (visible + size - 1) / size;
  for (int64_t b = 0; b < blocks; ++b) {
    Score top = 0;
    for (int64_t i = b * size; i < std::min(visible, (b + 1) * size); ++i) top = std::max(top, ordered[i]);
    best[b] = top;
  }
  if (blocks > 0) best[blocks - 1] = std::numeric_limits<Score>::max();
  pad(out, select_largest(best, blocks, args.candidate_blocks, out), args.candidate_blocks);
}

// Selection from the scores of the row's competitors, which are ordered in place; `best` has as much room.
template <typename Score>
void select_from(const IndexSelectArgs& args, int32_t row, std::byte* scores, std::byte* best) {
  const Competitors competitors(args, row);
  auto* ordered = reinterpret_cast<Score*>(scores);
  order_scores(ordered, competitors.count);
  if (args.role == CandidateRole::kWrite) {
    write_candidates(args, row, ordered, competitors.visible, reinterpret_cast<Score*>(best));
  }
  int32_t* selected = args.selected + static_cast<int64_t>(row) * args.topk;
  const int64_t found = select_largest(ordered, competitors.count, args.topk, selected);
  if (competitors.blocks != nullptr) {
    for (int64_t i = 0; i < found; ++i) selected[i] = static_cast<int32_t>(competitors.entry(selected[i]));
  }
  pad(selected, found, args.topk);
}

}  // namespace

// What needs no score: every competitor, and every block.
bool CpuOps::select_all(const IndexSelectArgs& args, int32_t row) const {
  const Competitors competitors(args, row);
  const int64_t size = std::max(1, args.candidate_size);
  const int64_t blocks = args.role == CandidateRole::kWrite ? (competitors.visible + size - 1) / size : 0;
  if (args.scores != nullptr || competitors.count > args.topk || blocks > args.candidate_blocks) return false;
  int32_t* selected = args.selected + static_cast<int64_t>(row) * args.topk;
  for (int64_t i = 0; i < competitors.count; ++i) selected[i] = static_cast<int32_t>(competitors.entry(i));
  pad(selected, competitors.count, args.topk);
  if (args.role == CandidateRole::kWrite) {
    int32_t* candidates = args.candidates + static_cast<int64_t>(row) * args.candidate_blocks;
    for (int32_t b = 0; b < blocks; ++b) candidates[b] = b;
    pad(candidates, blocks, args.candidate_blocks);
  }
  return true;
}

void CpuOps::select_scored(const IndexSelectArgs& args, int32_t row, const ThreadScratch& scratch) const {
  if (args.keys.format == RowFormat::kFp8Index) {
    select_from<uint32_t>(args, row, scratch.scores, scratch.block_scores);
  } else {
    select_from<uint16_t>(args, row, scratch.scores, scratch.block_scores);
  }
}

void CpuOps::index_select(const IndexSelectArgs& args) {
  if (!has_kernel(args)) return ReferenceOps::index_select(args);
  FOLIO_CHECK(args.heads <= limits_.index_heads && args.keys.dim <= limits_.index_dim, args.heads, " ", args.keys.dim);
  FOLIO_CHECK(index_score_bytes(args.keys.format) <= index_score_bytes(limits_.index_format));
  const IndexKernels& kernels = index_kernels(kernels_, args.keys.format);
  const auto pack = [&](int32_t query, const ThreadScratch& scratch) {
    FOLIO_CHECK(args.rows.visible(args.row_of(query), args.ratio) <= limits_.max_visible);
    const int64_t at = static_cast<int64_t>(query) * args.heads;
    kernels.query({bits_of(args.query) + at * args.keys.dim, bits_of(args.head_weights) + at, args.heads, args.keys.dim,
                   scratch.index_query});
  };

  const int32_t queries = args.queries();
  if (queries >= 2 * pool_.threads() || pool_.threads() == 1) {
    pool_.parallel_for(queries, 1, [&](int64_t i, int64_t, int thread) {
      const auto query = static_cast<int32_t>(i);
      const int32_t row = args.row_of(query);
      const ThreadScratch& scratch = scratch_.threads[static_cast<size_t>(thread)];
      if (select_all(args, row)) return;
      pack(query, scratch);
      if (args.scores != nullptr) trace_scores(args, row, scratch);
      const Competitors competitors(args, row);
      score_keys(args, row, scratch.index_query, competitors, 0, competitors.count, scratch.scores);
      select_scored(args, row, scratch);
    });
    return;
  }
  const ThreadScratch& scratch = scratch_.threads.front();
  for (int32_t query = 0; query < queries; ++query) {
    const int32_t row = args.row_of(query);
    if (select_all(args, row)) continue;
    pack(query, scratch);
    if (args.scores != nullptr) trace_scores(args, row, scratch);
    const Competitors competitors(args, row);
    pool_.parallel_for(competitors.count, kPart, [&](int64_t begin, int64_t end, int) {
      score_keys(args, row, scratch.index_query, competitors, begin, end, scratch.scores);
    });
    select_scored(args, row, scratch);
  }
}

}  // namespace folio::cpu
