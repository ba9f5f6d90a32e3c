// Sparse attention. Many rows: each thread takes runs of neighbouring rows and keeps the rows that it widened, since
// neighbours attend to nearly the same list. Few rows: threads share the heads of a row, and many threads also the
// widening of its list.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace folio::cpu {
namespace {

constexpr int64_t kRun = 16;  // neighbouring rows of one task
// So few threads each widen the whole list of a query for their own heads: cheaper than fetching the halves that others
// widened, which may come from another core complex.
constexpr int64_t kLonely = 4;

// The list of one query by chunks of slots.
struct AttendList {
  const AttendArgs& args;
  int32_t row, request;
  int64_t step_start, first;  // positions: of its request's first row, oldest in the window
  int64_t older;              // draft blocks: positions from `first` on that come behind the newer ones
  int64_t window_rows, selected_rows;
  const int32_t* selected;
  const int32_t* table;

  AttendList(const AttendArgs& a, int32_t r) : args(a), row(r), request(a.rows.request[r]) {
    const RequestSpan& span = a.rows.spans[request];
    step_start = a.rows.position[span.first_row];
    const int64_t newest = a.block > 0 ? step_start - 1 : a.rows.position[r];
    first = std::max<int64_t>(a.rows.window_floor(request, a.decoder), newest - a.window + 1);
    window_rows = newest - first + 1 + a.block;
    // By position mod window: from the last multiple of the window on, then those before it.
    older = a.block > 0 ? std::max<int64_t>(0, newest / a.window * a.window - first) : 0;
    selected = a.selected != nullptr ? a.selected + static_cast<int64_t>(r) * a.topk : nullptr;
    selected_rows = 0;
    if (selected != nullptr) {
      // -1 behind the last one; the list is ascending.
      const int32_t* end = std::find(selected, selected + a.topk, -1);
      selected_rows = end - selected;
    }
    table = nullptr;
    if (selected != nullptr) table = a.rows.page_tables + static_cast<int64_t>(request) * a.rows.page_table_stride;
  }

  int64_t chunks() const {
    const int64_t slots = selected_rows > 0 ? args.window + selected_rows : window_rows;
    return (slots + kAttendChunk - 1) / kAttendChunk;
  }
  // Of a slot in the window.
  int64_t position_in(int64_t slot) const {
    if (older == 0 || slot >= step_start - first) return first + slot;
    const int64_t newer = step_start - first - older;
    return slot < newer ? first + older + slot : first + slot - newer;
  }
  // Calls entry(in_window, index) for the rows in the chunk's slots: a position, or a row of the main plane.
  template <typename Entry>
  void for_chunk(int64_t chunk, const Entry& entry) const {
    const int64_t begin = chunk * kAttendChunk, end = begin + kAttendChunk;
    for (int64_t slot = begin; slot < std::min(end, window_rows); ++slot) entry(true, position_in(slot));
    const int64_t stop = std::min(end - args.window, selected_rows);
    for (int64_t i = std::max<int64_t>(0, begin - args.window); i < stop; ++i) entry(false, selected[i]);
  }
  RowAddress address(bool in_window, int64_t index) const {
    if (!in_window) return args.main.at(table, index);
    const RequestSpan& span = args.rows.spans[request];
    if (index >= step_start) {
      return args.ring.row_at(const_cast<std::byte*>(args.encoded), span.first_row + index - step_start);
    }
    return args.ring.at(span.slot, index);
  }
};

int64_t element_bytes(const Kernels& kernels) { return kernels.operand_bytes; }

}  // namespace

// Puts the operands of one cached row into `out`, or returns where they lie already.
const void* CpuOps::widen_row(const AttendArgs& args, bool in_window, RowAddress row, void* out) const {
  const RowFormat format = in_window ? args.ring.format : args.main.format;
  if (format == RowFormat::kBf16 && kernels_.reads_bf16_rows) return row.codes;
  kernels_.decode_row(format, reinterpret_cast<const uint8_t*>(row.codes), reinterpret_cast<const uint8_t*>(row.scales),
                      args.dim, out);
  return out;
}

AttendArgsOfRow CpuOps::attend_row_args(const AttendArgs& args, int64_t query, int64_t head, int64_t heads,
                                        std::byte* scratch) const {
  const int64_t at = (query * args.heads + head) * args.dim;
  return {bits_of(args.query) + at,
          heads,
          args.dim,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.dim))),
          host(args.sink).floats + head,
          bits_of(args.out) + at,
          scratch};
}

// Some heads of one query, with the thread's cache of widened rows: direct-mapped, one part for window positions and
// one for rows of the main plane. A row that would take the place of another row of the same chunk goes to a spare
// place.
void CpuOps::attend_row(const AttendArgs& args, int32_t query, int64_t head, int64_t heads,
                        ThreadScratch& scratch) const {
  const AttendList list(args, args.row_of(query));
  const int64_t row_bytes = args.dim * element_bytes(kernels_);
  const auto window_places = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(args.window)));
  const int64_t rest = row_cache_rows() - window_places;
  const auto main_places = rest > 0 ? static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rest))) : 0;
  const AttendArgsOfRow kernel_args = attend_row_args(args, query, head, heads, scratch.attend);
  kernels_.attend_begin(kernel_args);
  for (int64_t chunk = 0; chunk < list.chunks(); ++chunk) {
    const void* rows[kAttendChunk + 1];
    int64_t n = 0;
    const uint64_t stamp = ++scratch.chunk_stamp;
    list.for_chunk(chunk, [&](bool in_window, int64_t index) {
      int64_t place = in_window ? index & (window_places - 1) : window_places + (index & (main_places - 1));
      if (!in_window && main_places == 0) place = -1;
      const RowTag tag{scratch.cache_epoch, list.request, static_cast<int32_t>(index)};
      std::byte* out = scratch.spare_rows + n * row_bytes;
      if (place >= 0 && scratch.stamps[place] != stamp) {
        out = scratch.cached_rows + place * row_bytes;
        scratch.stamps[place] = stamp;
        if (scratch.tags[place] == tag) {
          rows[n++] = out;
          return;
        }
        scratch.tags[place] = tag;
      }
      rows[n] = widen_row(args, in_window, list.address(in_window, index), out);
      // A row that is its own operand was not copied into the cache.
      if (rows[n] != out && place >= 0) scratch.tags[place].epoch = 0;
      ++n;
    });
    if (n == 0) continue;
    rows[n] = rows[n - 1];
    kernels_.attend_chunk(kernel_args, rows, n);
  }
  kernels_.attend_end(kernel_args);
}

// Tasks of some heads of a query; `groups` of them make a query.
void CpuOps::attend_rows(const AttendArgs& args, int64_t groups) {
  const int64_t heads = (args.heads + groups - 1) / groups;
  const int64_t run = std::clamp<int64_t>(args.queries() / (4 * pool_.threads()), 1, kRun);
  ++attend_epoch_;
  for (ThreadScratch& scratch : scratch_.threads) scratch.cache_epoch = attend_epoch_;
  pool_.parallel_for(args.queries() * groups, run, [&](int64_t begin, int64_t end, int thread) {
    ThreadScratch& scratch = scratch_.threads[static_cast<size_t>(thread)];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t head = task % groups * heads, count = std::min(heads, args.heads - head);
      if (count > 0) attend_row(args, static_cast<int32_t>(task / groups), head, count, scratch);
    }
  });
}

void CpuOps::attend_together(const AttendArgs& args, int32_t query) {
  const AttendList list(args, args.row_of(query));
  const int64_t row_bytes = args.dim * element_bytes(kernels_);
  const int64_t chunks = list.chunks();
  Scratch& s = scratch_;
  pool_.parallel_for(chunks, 1, [&](int64_t chunk, int64_t, int) {
    const void** rows = s.list_rows + chunk * (kAttendChunk + 1);
    std::byte* out = s.list_memory + chunk * kAttendChunk * row_bytes;
    int32_t n = 0;
    list.for_chunk(chunk, [&](bool in_window, int64_t index) {
      rows[n] = widen_row(args, in_window, list.address(in_window, index), out + n * row_bytes);
      ++n;
    });
    if (n > 0) rows[n] = rows[n - 1];
    s.list_counts[chunk] = n;
  });
  const int64_t groups = std::min<int64_t>(pool_.threads(), args.heads);
  const int64_t heads = (args.heads + groups - 1) / groups;
  pool_.parallel_for(groups, 1, [&](int64_t group, int64_t, int thread) {
    const int64_t head = group * heads, count = std::min(heads, args.heads - head);
    if (count <= 0) return;
    const AttendArgsOfRow kernel_args =
        attend_row_args(args, query, head, count, s.threads[static_cast<size_t>(thread)].attend);
    kernels_.attend_begin(kernel_args);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (s.list_counts[chunk] == 0) continue;
      kernels_.attend_chunk(kernel_args, s.list_rows + chunk * (kAttendChunk + 1), s.list_counts[chunk]);
    }
    kernels_.attend_end(kernel_args);
  });
}

void CpuOps::attend(const AttendArgs& args) {
  FOLIO_CHECK(args.dim % 32 == 0 && args.dim <= limits_.head_dim && args.heads <= limits_.heads, args.dim);
  FOLIO_CHECK(args.window + args.block + (args.selected != nullptr ? args.topk : 0) <= limits_.list_length);
  const int64_t threads = pool_.threads();
  if (threads == 1 || args.queries() >= 2 * threads) return attend_rows(args, 1);
  if (threads <= kLonely) return attend_rows(args, std::min<int64_t>(threads, args.heads));
  for (int32_t i = 0; i < args.queries(); ++i) attend_together(args, i);
}

}  // namespace folio::cpu
