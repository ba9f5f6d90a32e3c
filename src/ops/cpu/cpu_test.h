// What tests of the CPU backend share. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/op_cases.h"

namespace folio {

inline std::vector<std::string> test_isas() {
  std::vector<std::string> names;
  for (cpu::Isa isa : cpu::available_isas()) names.emplace_back(cpu::isa_name(isa));
  return names;
}

}  // namespace folio
