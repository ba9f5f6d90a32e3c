// The scenarios of `folio validate runtime` on small models.
#include "engine/validation.h"

#include <gtest/gtest.h>

#include "support/small_model.h"

namespace folio {
namespace {

class Validation : public testing::TestWithParam<const char*> {};

TEST_P(Validation, Runtime) {
  const ModelFiles files = ModelFiles::open(test::small_model(GetParam()));
  int64_t scenarios = 0;
  validate_runtime(files, {}, [&](const ScenarioResult& result) {
    ++scenarios;
    for (const std::string& failure : result.failures) {
      ADD_FAILURE() << result.mode << " " << result.scenario << ": " << failure;
    }
  });
  EXPECT_GT(scenarios, 50);
}

INSTANTIATE_TEST_SUITE_P(Presets, Validation, testing::Values("nano", "slots"),
                         [](const auto& preset) { return std::string(preset.param); });

}  // namespace
}  // namespace folio
