// The ceilings of this machine for one ISA: what measurements of ops are fractions of. Bandwidth differs from minute to
// minute on shared machines, so probe in the run that is measured.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace folio {

struct CpuProbe {
  double read_gb_s = 0;     // 1e9 bytes per second, all threads reading one large buffer
  double bf16_gflop_s = 0;  // products of the GEMM kernels' operands: vdpbf16ps, or fp32 FMA on ISAs without it
};

// Takes about half a second. `buffer_bytes` should be many times the last cache.
CpuProbe probe_cpu(const CpuOptions& options, int64_t buffer_bytes = int64_t{512} << 20);

}  // namespace folio
