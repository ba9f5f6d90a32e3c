// What the machine can do at best, measured with the instructions that the kernels use, for the ISA namespace
// FOLIO_ISA.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"

namespace folio::cpu::FOLIO_ISA {

// Loads every byte once; the result keeps the loads alive.
inline uint64_t read_all(const std::byte* data, int64_t bytes) {
  constexpr int64_t kVecBytes = sizeof(I), kStreams = 8;
  I acc[kStreams];
  for (I& a : acc) a = isplat(0);
  for (int64_t at = 0; at + kStreams * kVecBytes <= bytes; at += kStreams * kVecBytes) {
    for (int64_t i = 0; i < kStreams; ++i) acc[i] = ior(acc[i], load_int(data + at + i * kVecBytes));
  }
  I all = acc[0];
  for (int64_t i = 1; i < kStreams; ++i) all = ior(all, acc[i]);
  int32_t lanes[kLanes];
  store_int(lanes, all);
  uint64_t result = 0;
  for (const int32_t lane : lanes) result ^= static_cast<uint32_t>(lane);
  return result;
}

// Independent products of the operands of the GEMM kernels, enough of them to hide the latency.
inline int64_t multiply_add(int64_t rounds) {
  constexpr int kChains = 12;
  using D = DecodeBf16;
  typename D::Elem ones[D::kElems];
  for (auto& one : ones) one = static_cast<typename D::Elem>(1);
  auto x = D::load(ones), y = D::load(ones);
  F acc[kChains];
  for (F& a : acc) a = zero();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = D::dot(acc[c], x, y);
    opaque(x);
    opaque(y);
  }
  for (int c = 1; c < kChains; ++c) acc[0] = add(acc[0], acc[c]);
  float total = sum(acc[0]);
  __asm__ volatile("" : "+m"(total));
  return rounds * kChains * D::kElems * 2;
}

}  // namespace folio::cpu::FOLIO_ISA
