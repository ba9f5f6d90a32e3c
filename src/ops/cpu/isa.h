// Which instruction set the CPU kernels use; decided once, at start.
#pragma once

#include <string>
#include <vector>

namespace folio::cpu {

enum class Isa { kScalar, kAvx2, kAvx512Bf16 };

// "scalar", "avx2", "avx512bf16"
const char* isa_name(Isa isa);

// The sets that this processor has, narrowest first. The operating system must save their registers too.
std::vector<Isa> available_isas();

// The set called `name`, or the widest available one when `name` is empty. Throws Error(kInvalidArgument) for an
// unknown name and Error(kUnsupported) for a set that the processor lacks.
Isa choose_isa(const std::string& name);

}  // namespace folio::cpu
