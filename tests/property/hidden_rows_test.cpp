// Hidden states through the engine: whatever runs beside a request that asks for them, and however it is cut or
// preempted, its rows have the bits of a run alone.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "engine/engine_core.h"
#include "support/small_model.h"

namespace folio {
namespace {

using Rows = std::map<std::string, std::vector<uint16_t>>;

// Rows by tensor, in order; what is told again must be the same.
class RowSink final : public Sink {
 public:
  explicit RowSink(int64_t hidden) : hidden_(hidden) {}
  void on_token(int32_t, const TokenOutput&) override {}
  void on_finish(int32_t, FinishReason reason, const Usage& usage, const std::string&) override {
    EXPECT_EQ(reason, FinishReason::kLength);
    preemptions = usage.preemptions;
    finished = true;
  }
  void on_hidden_rows(const std::string& tensor, int64_t position, std::span<const bf16> given) override {
    std::vector<uint16_t>& have = rows[tensor];
    const auto first = static_cast<size_t>(position * hidden_);
    ASSERT_LE(first, have.size()) << tensor << ": rows are missing before " << position;
    for (size_t i = 0; i < given.size(); ++i) {
      if (first + i == have.size()) {
        have.push_back(given[i].bits);
      } else {
        ASSERT_EQ(have[first + i], given[i].bits) << tensor << " element " << first + i;
      }
    }
  }
  Rows rows;
  int32_t preemptions = 0;
  bool finished = false;

 private:
  int64_t hidden_;
};

class HiddenRowsOfRequests : public testing::Test {
 protected:
  HiddenRowsOfRequests() : files_(ModelFiles::open(test::small_model("nano"))) {
    runner_.block_size = 16;
    runner_.max_model_len = 192;
    runner_.max_num_seqs = config_.max_num_seqs = 4;
    runner_.threads = 1;
    config_.poison = true;
  }
  int64_t hidden_size() const { return files_.checkpoint.config().hidden_size; }

  std::shared_ptr<Request> request(int64_t length, uint64_t seed, int64_t max_tokens) const {
    auto request = std::make_shared<Request>();
    for (int64_t i = 0; i < length; ++i) {
      request->prompt.push_back(static_cast<int32_t>(3 + random_bits(seed, 0, static_cast<uint64_t>(i)) % 500));
    }
    request->max_tokens = max_tokens;
    request->sampling.temperature = 0;
    request->ignore_eos = true;
    request->sink = std::make_shared<RowSink>(hidden_size());
    return request;
  }
  static const RowSink& sink(const Request& request) { return static_cast<const RowSink&>(*request.sink); }

  // Runs all requests together in steps of `rows` rows; preempts the youngest before step `preempt_at`.
  void run(const std::vector<std::shared_ptr<Request>>& requests, int32_t rows, int preempt_at = -1) {
    runner_.max_rows = config_.max_num_batched_tokens = rows;
    runner_.max_head_rows = config_.max_num_seqs;
    ModelRunner runner(files_, runner_);
    EngineCore core(runner, config_);
    for (size_t i = 0; i < requests.size(); ++i) core.submit(static_cast<RequestId>(i), requests[i]);
    for (int step = 0; !core.empty(); ++step) {
      ASSERT_LT(step, 2000);
      if (step == preempt_at) {
        EXPECT_TRUE(core.scheduler().preempt_youngest());
      }
      core.step();
    }
  }
  // A request that asks for three tensors: before, at and after the layer where decoder replay begins.
  std::shared_ptr<Request> asking(int64_t max_tokens) const {
    auto asking = request(70, 5, max_tokens);
    asking->hidden_rows = {"tap.2", "tap.7", "hidden"};
    return asking;
  }

  ModelFiles files_;
  RunnerOptions runner_;
  EngineConfig config_;
};

TEST_F(HiddenRowsOfRequests, HaveTheBitsOfARunAlone) {
  config_.encoder_replay = true;
  const auto alone = asking(1);
  run({alone}, 160);
  ASSERT_TRUE(sink(*alone).finished);
  ASSERT_EQ(sink(*alone).rows.size(), 3u);
  for (const auto& [tensor, rows] : sink(*alone).rows) {
    EXPECT_EQ(std::ssize(rows), 70 * hidden_size()) << tensor;
  }
  // Beside requests that leave rows out of the decoder layers, and its own prefix computed by one of them before.
  for (const int32_t rows : {5, 37, 160}) {
    const auto beside = asking(4), same = request(70, 5, 12);
    run({same, request(150, 6, 9), beside, request(33, 7, 20)}, rows);
    EXPECT_EQ(sink(*beside).rows, sink(*alone).rows) << rows << " rows a step";
    EXPECT_TRUE(sink(*same).rows.empty());
  }
}

TEST_F(HiddenRowsOfRequests, SurvivePreemption) {
  const auto alone = asking(1);
  run({alone}, 160);
  const auto preempted = asking(3);
  run({request(40, 8, 5), preempted}, 21, 3);
  EXPECT_EQ(sink(*preempted).preemptions, 1);
  EXPECT_EQ(sink(*preempted).rows, sink(*alone).rows);
}

TEST_F(HiddenRowsOfRequests, AreCheckedByName) {
  const auto refused = [&](const std::string& tensor, int32_t choices = 1) {
    auto asking = request(4, 1, 1);
    asking->hidden_rows = {tensor};
    asking->choices = choices;
    EXPECT_THROW(check_request(*asking, files_.checkpoint.config()), Error) << tensor;
  };
  for (const char* tensor : {"", "tap", "tap.", "tap.-1", "tap.8", "tap.2x", "tap.99999999999", "logits", "tap.1"}) {
    refused(tensor);
  }
  refused("hidden", 2);
}

}  // namespace
}  // namespace folio
