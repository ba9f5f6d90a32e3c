// Op by op against the oracle, with the oracle's own inputs, for every backend that this processor runs.
//
//   golden_ops_test --goldens build/goldens [--quick] [--report FILE.json]
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "op_runner.h"

namespace folio::golden {
namespace {

Report report;

class OpsAgainstOracle : public testing::Test {
 public:
  OpsAgainstOracle(GoldenCase golden_case, std::string backend)
      : case_(std::move(golden_case)), backend_(std::move(backend)) {}

  void TestBody() override {
    const std::unique_ptr<Ops> ops = make_backend(backend_);
    Recorder recorder;
    OpRunner runner(case_, *ops, recorder);
    runner.embedding();
    runner.step();
    for (int layer = 0; layer < runner.config().num_hidden_layers; ++layer) {
      const LayerTopology& topology = runner.topology()[layer];
      if (topology.engram >= 0) runner.engram(layer);
      runner.hyper(layer);
      runner.queries(layer);
      runner.window(layer);
      if (topology.kv_owner == layer) runner.compressor(layer);
      if (topology.index_source == layer) runner.indexer(layer);
      runner.attend(layer);
      runner.output(layer);
      runner.experts(layer);
    }
    runner.head();
    recorder.check(backend_ == "ref");
    report.add(case_.name, backend_, recorder);
  }

 private:
  GoldenCase case_;
  std::string backend_;
};

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string goldens, report_file;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") quick = true;
    if (argument == "--goldens" && i + 1 < argc) goldens = argv[++i];
    if (argument == "--report" && i + 1 < argc) report_file = argv[++i];
  }
  for (const GoldenCase& golden_case : load_cases(goldens, quick)) {
    for (const std::string& backend : backend_names()) {
      testing::RegisterTest("OpsAgainstOracle", concat(golden_case.name, ".", backend).c_str(), nullptr, nullptr,
                            __FILE__, __LINE__,
                            [=]() -> testing::Test* { return new OpsAgainstOracle(golden_case, backend); });
    }
  }
  const int status = RUN_ALL_TESTS();
  report.print();
  if (!report_file.empty()) report.write_json(report_file);
  return status;
}

}  // namespace
}  // namespace folio::golden

int main(int argc, char** argv) {
  try {
    return folio::golden::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "golden_ops_test: %s\n", error.what());
    return 1;
  }
}
