#include "ops/cpu/probe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"
#include "tensor/buffer.h"

namespace folio {
namespace {

const cpu::Kernels& kernels_of(cpu::Isa isa) {
  switch (isa) {
    case cpu::Isa::kScalar:
      return cpu::scalar_kernels();
    case cpu::Isa::kAvx2:
      return cpu::avx2_kernels();
    case cpu::Isa::kAvx512Bf16:
      return cpu::avx512bf16_kernels();
  }
  return cpu::scalar_kernels();
}

// Seconds of the best of `rounds` calls: what disturbs a probe only makes it slower.
template <typename Work>
double best_seconds(int rounds, const Work& work) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double start = now_seconds();
    work();
    best = std::min(best, now_seconds() - start);
  }
  return best;
}

}  // namespace

CpuProbe probe_cpu(const CpuOptions& options, int64_t buffer_bytes) {
  const cpu::Kernels& kernels = kernels_of(cpu::choose_isa(options.isa));
  ThreadPool pool(options.threads);
  const std::unique_ptr<Device> device = make_cpu_device();
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t pieces = std::max<int64_t>(1, buffer_bytes / kPiece);
  Buffer buffer(*device, pieces * kPiece);
  std::memset(buffer.data(), 1, static_cast<size_t>(buffer.bytes()));
  std::atomic<uint64_t> sink{0};
  CpuProbe probe;
  const double read = best_seconds(6, [&] {
    // Each thread walks its own part, as far as the others keep up.
    pool.parallel_for(pieces, std::max<int64_t>(1, pieces / (8 * pool.threads())),
                      [&](int64_t begin, int64_t end, int) {
                        sink += kernels.read_all(buffer.data() + begin * kPiece, (end - begin) * kPiece);
                      });
  });
  probe.read_gb_s = static_cast<double>(pieces * kPiece) / read / 1e9;

  constexpr int64_t kRounds = 20000;  // short, so that some round is undisturbed
  std::atomic<int64_t> flops{0};
  const double compute = best_seconds(100, [&] {
    flops = 0;
    pool.parallel_for(8 * pool.threads(), 1, [&](int64_t, int64_t, int) { flops += kernels.multiply_add(kRounds); });
  });
  probe.bf16_gflop_s = static_cast<double>(flops) / compute / 1e9;
  return probe;
}

}  // namespace folio
