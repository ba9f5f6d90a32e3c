#include "golden_main.h"

#include <cstdio>
#include <exception>

#include "op_runner.h"

namespace folio::golden {
namespace {

int run(int argc, char** argv, const char* suite, const MakeTest& make_test) {
  testing::InitGoogleTest(&argc, argv);
  std::string goldens, report_file;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") quick = true;
    if (argument == "--goldens" && i + 1 < argc) goldens = argv[++i];
    if (argument == "--report" && i + 1 < argc) report_file = argv[++i];
  }
  Report report;
  for (const GoldenCase& golden_case : load_cases(goldens, quick)) {
    for (const std::string& backend : backend_names()) {
      testing::RegisterTest(suite, concat(golden_case.name, ".", backend).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [=, &make_test, &report] { return make_test(golden_case, backend, report); });
    }
  }
  const int status = RUN_ALL_TESTS();
  report.print();
  if (!report_file.empty()) report.write_json(report_file);
  return status;
}

}  // namespace

int golden_main(int argc, char** argv, const char* suite, const MakeTest& make_test) {
  try {
    return run(argc, argv, suite, make_test);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", suite, error.what());
    return 1;
  }
}

}  // namespace folio::golden
