#include "engine/capacity.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "base/error.h"

namespace folio {
namespace {

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

std::string gib(int64_t bytes) { return format("%.3g GiB", static_cast<double>(bytes) / (1 << 30)); }

}  // namespace

int64_t Capacity::concurrent(int64_t tokens) const {
  return std::min<int64_t>(slots, pages / std::max<int64_t>(1, pages_for(tokens)));
}

Capacity plan_pages(Capacity capacity, int32_t wanted, int64_t requests, int64_t free) {
  const int64_t per_request = capacity.pages_for(capacity.max_model_len);
  const int64_t least = wanted > 0 ? wanted : per_request;
  capacity.pages = 0;
  const int64_t fixed = capacity.weights + capacity.request_memory();
  const int64_t fits = (capacity.budget - fixed) / capacity.page_bytes;
  if (capacity.budget < fixed || fits < least) {
    fail(ErrorCode::kOutOfMemory, "does not fit in memory: weights ", gib(capacity.weights), ", activations ",
         gib(capacity.activations), ", STATE of ", capacity.slots, " requests ",
         gib(capacity.slots * capacity.state_bytes), " and ", least, " PAGEs ", gib(least * capacity.page_bytes),
         " exceed the budget of ", gib(capacity.budget), " (", gib(free), " are free); lower --max-model-len, ",
         "--max-num-seqs or --max-num-batched-tokens, raise --memory-budget, or use a machine with more memory");
  }
  const int64_t most = std::min<int64_t>(requests * per_request, std::numeric_limits<int32_t>::max());
  capacity.pages = wanted > 0 ? wanted : static_cast<int32_t>(std::min(fits, std::max(most, per_request)));
  return capacity;
}

std::string capacity_table(const Capacity& capacity) {
  std::string table;
  const auto size = [&](const char* what, int64_t bytes) { table += format("  %-34s%s\n", what, gib(bytes).c_str()); };
  size("budget", capacity.budget);
  size("weights", capacity.weights);
  size("activations", capacity.activations);
  size(format("STATE, %d slots", capacity.slots).c_str(), capacity.slots * capacity.state_bytes);
  size(format("PAGE, %d of %d tokens", capacity.pages, capacity.block_size).c_str(),
       capacity.pages * capacity.page_bytes);
  table += format("\n  %-10s%-14s%-14s%s\n", "context", "tokens", "PAGEs each", "at once");
  for (const int percent : {10, 30, 50, 70, 90, 100}) {
    const int64_t tokens = std::max<int64_t>(1, capacity.max_model_len * percent / 100);
    table +=
        format("  %-10s%-14lld%-14lld%lld\n", format("%d %%", percent).c_str(), static_cast<long long>(tokens),
               static_cast<long long>(capacity.pages_for(tokens)), static_cast<long long>(capacity.concurrent(tokens)));
  }
  return table;
}

}  // namespace folio
