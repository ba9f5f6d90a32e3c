#include "model/engram_hash.h"

#include <gtest/gtest.h>

namespace folio {
namespace {

TEST(EngramHash, MultipliersOfThePublishedModel) {
  const std::vector<int64_t> layer1 = {76632096046245, 4839876093313, 35959672319349, 73987337458391};
  const std::vector<int64_t> layer14 = {67716810739261, 51510806800915, 30921347202721, 82619226485591};
  EXPECT_EQ(engram_multipliers(1, 4, 99092), layer1);
  EXPECT_EQ(engram_multipliers(14, 4, 99092), layer14);
}

}  // namespace
}  // namespace folio
