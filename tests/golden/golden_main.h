// The program of a golden test: a gtest test for every golden case and every backend that this processor runs.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "comparison.h"
#include "golden_case.h"

namespace folio::golden {

using MakeTest =
    std::function<testing::Test*(const GoldenCase& golden_case, const std::string& backend, Report& report)>;

// Flags: --goldens DIR [--quick] [--report FILE.json], and gtest's. Prints what the tests have added to the report, and
// returns the exit status.
int golden_main(int argc, char** argv, const char* suite, const MakeTest& make_test);

}  // namespace folio::golden
