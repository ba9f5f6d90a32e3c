// The kernels of the avx512bf16 instruction set. Compiled with flags of its own (src/ops/room.cmake); see kernels.h.
#define FOLIO_ISA avx512bf16

// The types of the ISA, which the kernels below are written over.
#include "ops/cpu/cache_avx512.h"

#include "ops/cpu/attend_kernels.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/index_fp8_kernels.h"
#include "ops/cpu/index_kernels.h"
#include "ops/cpu/probe_kernels.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/sample_kernels.h"
#include "ops/cpu/stream_kernels.h"

namespace folio::cpu {

const Kernels& avx512bf16_kernels() {
  namespace isa = FOLIO_ISA;
  static constexpr Kernels kernels = {
      .operand_bytes = sizeof(isa::DecodeBf16::Elem),
      .gemm_scratch_bytes = isa::gemm_scratch_bytes,
      .pack = isa::pack,
      .unpack = isa::unpack,
      .gemm = isa::gemm,
      .mix = isa::mix,
      .norm = isa::norm,
      .swiglu = isa::swiglu,
      .accumulate = isa::accumulate,
      .accumulate_last = isa::accumulate_last,
      .mean_square = isa::mean_square,
      .collapse = isa::collapse,
      .expand = isa::expand,
      .inject = isa::inject,
      .rotate = isa::rotate,
      .pool = isa::pool,
      .affinity = isa::affinity,
      .quantize8 = isa::quantize8,
      .round8 = isa::round8,
      .dequantize8 = isa::decode_fp8_row,
      .log_sum = isa::log_sum,
      .weights = isa::weights,
      .reads_bf16_rows = isa::kReadsBf16Rows,
      .attend_scratch_bytes = isa::attend_scratch_bytes,
      .decode_row = isa::decode_row,
      .attend_begin = isa::attend_begin,
      .attend_chunk = isa::attend_chunk,
      .attend_end = isa::attend_end,
      .read_all = isa::read_all,
      .multiply_add = isa::multiply_add,
      .index_fp4 = {isa::index_query_bytes, isa::index_query, isa::index_score},
      .index_fp8 = {isa::index_fp8_query_bytes, isa::index_fp8_query, isa::index_fp8_score},
  };
  return kernels;
}

}  // namespace folio::cpu
