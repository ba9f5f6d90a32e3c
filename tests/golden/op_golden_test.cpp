// Op by op against the oracle, with the oracle's own inputs, for every backend that this processor runs.
//
//   golden_ops_test --goldens build/goldens [--quick] [--report FILE.json]
#include <gtest/gtest.h>

#include <string>

#include "golden_main.h"
#include "op_runner.h"

namespace folio::golden {
namespace {

class OpsAgainstOracle : public testing::Test {
 public:
  OpsAgainstOracle(GoldenCase golden_case, std::string backend, Report& report)
      : case_(std::move(golden_case)), backend_(std::move(backend)), report_(report) {}

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
    report_.add(case_.name, backend_, recorder);
  }

 private:
  GoldenCase case_;
  std::string backend_;
  Report& report_;
};

}  // namespace
}  // namespace folio::golden

int main(int argc, char** argv) {
  using namespace folio::golden;
  return golden_main(argc, argv, "OpsAgainstOracle",
                     [](const GoldenCase& golden_case, const std::string& backend, Report& report) {
                       return new OpsAgainstOracle(golden_case, backend, report);
                     });
}
