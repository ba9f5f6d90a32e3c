#include "ops/cpu/isa.h"

#include <algorithm>

#include "base/error.h"

namespace folio::cpu {

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "?";
}

std::vector<Isa> available_isas() {
  // The compiler's run-time support asks CPUID, and XGETBV for what the operating system saves.
  __builtin_cpu_init();
  std::vector<Isa> isas = {Isa::kScalar};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) isas.push_back(Isa::kAvx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bitalg") &&
                      __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("gfni") &&
                      __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512bf16");
  if (avx2 && avx512) isas.push_back(Isa::kAvx512Bf16);
  return isas;
}

Isa choose_isa(const std::string& name) {
  const std::vector<Isa> available = available_isas();
  if (name.empty()) return available.back();
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Bf16}) {
    if (name != isa_name(isa)) continue;
    if (std::find(available.begin(), available.end(), isa) != available.end()) return isa;
    fail(ErrorCode::kUnsupported, "this processor has no ", name, "; the widest set it has is ",
         isa_name(available.back()));
  }
  fail(ErrorCode::kInvalidArgument, "unknown ISA \"", name,
       "\"; known are scalar, avx2, avx512bf16 and, to run models, ref");
}

}  // namespace folio::cpu
