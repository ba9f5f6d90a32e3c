// Small random checkpoints for tests, written once per process.
#pragma once

#include <string>

namespace folio::test {

// Directory of a checkpoint of `preset` and `seed`; removed when the process ends.
std::string small_model(const std::string& preset, uint64_t seed = 1);

}  // namespace folio::test
