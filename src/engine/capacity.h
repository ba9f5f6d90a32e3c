// What the memory budget holds: weights and activations, then STATE for every running request, then PAGEs (spec runtime
// 3.13). Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>

namespace folio {

struct Capacity {
  int64_t budget = 0;       // bytes that may be used
  int64_t weights = 0;      // bytes; Engram tables stay on disk and are not counted
  int64_t activations = 0;  // bytes
  int64_t state_bytes = 0;  // of a slot
  int64_t page_bytes = 0;   // of a PAGE
  int32_t block_size = 0;   // tokens of a PAGE
  int64_t max_model_len = 0;
  int32_t slots = 0;
  int32_t pages = 0;

  int64_t pages_for(int64_t tokens) const { return (tokens + block_size - 1) / block_size; }
  // Bytes beside the weights.
  int64_t request_memory() const { return activations + slots * state_bytes + pages * page_bytes; }
  // Requests of `tokens` tokens that can run at once.
  int64_t concurrent(int64_t tokens) const;
};

// Sets `pages`: `wanted` of them, or, when that is 0, as many as the budget leaves beside the rest of `capacity`, at
// most those of `requests` requests of max_model_len. Throws Error(kOutOfMemory) with the numbers when the wanted pages
// do not fit or no request of max_model_len would. `free` is for the message: bytes that the machine has.
Capacity plan_pages(Capacity capacity, int32_t wanted, int64_t requests, int64_t free);

// A table for people: what takes how much, and how many requests of 10 to 100 % of max_model_len run at once.
std::string capacity_table(const Capacity& capacity);

}  // namespace folio
