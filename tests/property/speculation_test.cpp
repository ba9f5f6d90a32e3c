// The life of speculating requests: the scenarios of `folio validate dspark` (src/engine/scenarios_dspark.cpp) on a
// small model, in copy and replay mode, packed and bf16 caches.
#include <gtest/gtest.h>

#include "engine/validation.h"
#include "support/sanitized.h"
#include "support/small_model.h"

namespace folio {
namespace {

void validate(const std::string& preset, int32_t width, std::optional<bool> packed) {
  const ModelFiles files = ModelFiles::open(test::small_model(preset));
  int played = 0;
  const DsparkValidation validation{
      .options = {.isa = "", .cache_format = {}, .only = "", .num_speculative_tokens = width}, .packed = packed};
  validate_dspark(files, validation, [&](const ScenarioResult& result) {
    ++played;
    for (const std::string& failure : result.failures) {
      ADD_FAILURE() << result.mode << ", " << result.scenario << ": " << failure;
    }
    EXPECT_GT(result.tokens_compared, 0) << result.scenario;
  });
  EXPECT_GE(played, 30);
}

TEST(Speculation, WidestBlocks) { validate("nano", 5, test::kSanitized ? std::optional(true) : std::nullopt); }
TEST(Speculation, OneDraft) { validate("nano", 1, true); }

}  // namespace
}  // namespace folio
