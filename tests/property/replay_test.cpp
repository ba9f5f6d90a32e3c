// The invariants of bounded replay (spec runtime 4.4), each by itself. That every answer has the bits of a solo run
// with the same plan is the business of schedule_test.cpp and validation_test.cpp.
//
// There is no back-off here: a chunk goes on from its slot, so a forward may end anywhere (decision 0009).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "engine/engine_probe.h"
#include "ops/ref/reference_ops.h"
#include "support/small_model.h"

namespace folio {
namespace {

// What the ops were called with, step by step.
struct StepCalls {
  struct Attend {
    bool decoder;
    int32_t rows;
    int32_t queries;
  };
  int32_t rows = 0;
  std::vector<Attend> attends;
  std::vector<int64_t> window_rows;  // of each encode_window
  std::vector<int64_t> expert_rows;  // of each experts
  int64_t main_writes = 0, index_writes = 0, samples = 0;
  std::vector<std::vector<int64_t>> engram;  // table rows of each engram_gather
};

class RecordingOps final : public ReferenceOps {
 public:
  explicit RecordingOps(std::vector<StepCalls>& steps) : steps_(steps) {}
  void begin_step(const BeginStepArgs& args) override {
    steps_.emplace_back().rows = args.inputs.num_rows;
    ReferenceOps::begin_step(args);
  }
  void attend(const AttendArgs& args) override {
    steps_.back().attends.push_back({args.decoder, args.rows.count, args.queries()});
    ReferenceOps::attend(args);
  }
  void encode_window(const EncodeWindowArgs& args) override {
    steps_.back().window_rows.push_back(args.rows);
    ReferenceOps::encode_window(args);
  }
  void experts(const ExpertsArgs& args) override {
    steps_.back().expert_rows.push_back(args.rows);
    ReferenceOps::experts(args);
  }
  void write_main(const WritePagedArgs& args) override {
    ++steps_.back().main_writes;
    ReferenceOps::write_main(args);
  }
  void write_index(const WritePagedArgs& args) override {
    ++steps_.back().index_writes;
    ReferenceOps::write_index(args);
  }
  void engram_gather(const EngramGatherArgs& args) override {
    steps_.back().engram.emplace_back(args.table_rows, args.table_rows + args.rows * args.columns);
    ReferenceOps::engram_gather(args);
  }
  void sample(const SampleArgs& args) override {
    ++steps_.back().samples;
    ReferenceOps::sample(args);
  }

 private:
  std::vector<StepCalls>& steps_;
};

class Replay : public testing::TestWithParam<const char*> {
 protected:
  Replay() : files_(ModelFiles::open(test::small_model(GetParam()))) {
    runner_.block_size = static_cast<int32_t>(window());
    runner_.max_model_len = 12 * block();
    runner_.max_num_seqs = 4;
    runner_.max_rows = runner_.max_head_rows = static_cast<int32_t>(6 * block());
    runner_.threads = 1;
    engine_.max_num_seqs = runner_.max_num_seqs;
    engine_.max_num_batched_tokens = runner_.max_rows;
    engine_.poison = true;
  }
  int64_t window() const { return files_.checkpoint.config().sliding_window; }
  int64_t block() const { return runner_.block_size; }

  EngineProbe probe(std::unique_ptr<Ops> ops = nullptr) { return {files_, runner_, engine_, std::move(ops)}; }
  std::vector<int32_t> prompt(int64_t length, uint64_t number = 1) const {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<int32_t>(3 + random_bits(number, 0, static_cast<uint64_t>(i)) % 500));
    }
    return tokens;
  }
  static Request request(std::vector<int32_t> prompt, int64_t max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    return request;
  }
  // Steps until the request has been told `tokens` tokens; it is still running then.
  static const RequestState& run_to(EngineProbe& probe, RequestId id, size_t tokens) {
    while (probe.answer(id).tokens.size() < tokens) probe.step();
    return *probe.state(id);
  }
  // The ring of one layer in the request's slot, row by row.
  static std::vector<std::vector<std::byte>> ring(EngineProbe& probe, const RequestState& state, int32_t layer) {
    const RingRows rows = probe.runner().geometry().window_rows(probe.runner().states().data(), layer);
    std::vector<std::vector<std::byte>> out;
    for (int32_t i = 0; i < rows.ring_rows; ++i) {
      const std::byte* row = rows.at(state.slot, i).codes;
      out.emplace_back(row, row + code_bytes(rows.format, rows.dim) + scale_bytes(rows.format, rows.dim));
    }
    return out;
  }
  static bool poisoned(const std::vector<std::byte>& row) {
    return std::ranges::all_of(row, [](std::byte b) { return b == std::byte{0xff}; });
  }
  static SlotCursor cursor(EngineProbe& probe, const RequestState& state) {
    const Geometry& geometry = probe.runner().geometry();
    SlotCursor out;
    std::memcpy(&out, geometry.cursors(probe.runner().states().data()) + state.slot * geometry.state_bytes(),
                sizeof out);
    return out;
  }
  std::vector<PageBytes> pages(EngineProbe& probe, const RequestState& state) const {
    std::vector<PageBytes> out;
    for (const int32_t page : state.pages) out.push_back(read_page(probe.runner(), page));
    return out;
  }
  // Answers have the bits of solo runs, nothing leaks.
  void expect_right(EngineProbe& probe) {
    ASSERT_TRUE(probe.drain());
    SoloRunner solo(files_, runner_);
    for (const std::string& leak : probe.leaks()) ADD_FAILURE() << leak;
    for (const std::string& page : probe.recorder().changed_pages()) ADD_FAILURE() << page;
    const AnswerCheck check = probe.check(solo);
    for (const std::string& difference : check.differences()) ADD_FAILURE() << difference;
  }

  ModelFiles files_;
  RunnerOptions runner_;
  EngineConfig engine_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(Replay, ChunksThatDoNotFinishRunNothingPastTheLastOwner) {
  std::vector<StepCalls> steps;
  engine_.max_num_batched_tokens = static_cast<int32_t>(2 * block());
  EngineProbe engine = probe(std::make_unique<RecordingOps>(steps));
  const Topology& topology = engine.runner().topology();
  const auto encoder = static_cast<size_t>(topology.first_decoder_layer);
  const auto layers = static_cast<size_t>(engine.runner().config().num_hidden_layers);
  const auto owners = static_cast<int64_t>(topology.kv_owners.size());
  engine.submit(request(prompt(5 * block() + 3), 2));
  ASSERT_TRUE(engine.drain());
  ASSERT_EQ(steps.size(), 4u);  // two chunks, the one that finishes, a decode
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepCalls& step = steps[i];
    EXPECT_EQ(step.main_writes, owners);
    EXPECT_EQ(step.index_writes, owners);
    if (i < 2) {
      EXPECT_EQ(step.attends.size(), encoder);
      EXPECT_EQ(step.expert_rows.size(), encoder);
      EXPECT_EQ(step.window_rows.size(), encoder);
      EXPECT_EQ(step.samples, 0);
      EXPECT_TRUE(std::ranges::none_of(step.attends, [](const auto& attend) { return attend.decoder; }));
      continue;
    }
    EXPECT_EQ(step.samples, 1);
    ASSERT_EQ(step.attends.size(), layers);
    ASSERT_EQ(step.expert_rows.size(), layers);
    for (size_t layer = 0; layer < layers; ++layer) {
      const bool decoder = layer >= encoder;
      const int64_t keys = i == 3 ? 1 : (decoder ? window() : step.rows);
      const int64_t queries = layer + 1 == layers ? 1 : keys;
      EXPECT_EQ(step.attends[layer].decoder, decoder);
      EXPECT_EQ(step.attends[layer].rows, keys);
      EXPECT_EQ(step.attends[layer].queries, queries);
      EXPECT_EQ(step.window_rows[layer], keys);
      EXPECT_EQ(step.expert_rows[layer], queries);
    }
  }
}

TEST_P(Replay, ChunksThatDoNotFinishLeaveDecoderRingsAlone) {
  engine_.max_num_batched_tokens = static_cast<int32_t>(2 * block());
  EngineProbe engine = probe();
  const RequestId id = engine.submit(request(prompt(5 * block() + 3), 2));
  for (int chunk = 0; chunk < 2; ++chunk) {
    engine.step();
    const RequestState& state = *engine.state(id);
    ASSERT_EQ(state.generated() + state.in_flight, 0);
    for (int32_t layer = 0; layer < engine.runner().config().num_hidden_layers; ++layer) {
      const auto rows = ring(engine, state, layer);
      const bool untouched = std::ranges::all_of(rows, poisoned);
      EXPECT_EQ(untouched, layer >= engine.runner().topology().first_decoder_layer) << layer;
    }
  }
}

TEST_P(Replay, EncoderPlanesAndRingsDoNotDependOnDecoderReplay) {
  std::vector<std::vector<PageBytes>> planes;
  std::vector<std::vector<std::vector<std::byte>>> rings;
  for (const bool on : {true, false}) {
    engine_.decoder_replay = on;
    EngineProbe engine = probe();
    const RequestId id = engine.submit(request(prompt(5 * block() + 3), 2));
    const RequestState& state = run_to(engine, id, 1);
    EXPECT_EQ(state.decoder_start, on ? 5 * block() + 3 - window() : 0);
    planes.push_back(pages(engine, state));
    for (int32_t layer = 0; layer < engine.runner().topology().first_decoder_layer; ++layer) {
      rings.push_back(ring(engine, state, layer));
    }
  }
  EXPECT_EQ(planes[0], planes[1]);
  const size_t half = rings.size() / 2;
  EXPECT_TRUE(std::equal(rings.begin(), rings.begin() + static_cast<std::ptrdiff_t>(half),
                         rings.begin() + static_cast<std::ptrdiff_t>(half)));
}

// After a prefill every ring row holds one of the last window of positions; decode goes on for more than a window
// without reading a row that nobody wrote, which would be NaN.
TEST_P(Replay, RingsHoldTheLastWindowAfterAPrefill) {
  for (const int64_t length : {window(), window() + 1, 5 * block() + 3}) {
    EngineProbe engine = probe();
    const RequestId id = engine.submit(request(prompt(length), window() + 9));
    const RequestState& state = run_to(engine, id, 1);
    for (int32_t layer = 0; layer < engine.runner().config().num_hidden_layers; ++layer) {
      EXPECT_TRUE(std::ranges::none_of(ring(engine, state, layer), poisoned)) << "layer " << layer;
    }
    ASSERT_TRUE(engine.drain());
    for (const float logprob : engine.answer(id).logprobs) EXPECT_TRUE(std::isfinite(logprob));
  }
}

TEST_P(Replay, SharedPagesKeepTheirBytes) {
  for (const int32_t budget : {runner_.max_rows, static_cast<int32_t>(block() / 2 + 4)}) {
    engine_.max_num_batched_tokens = budget;  // the smaller one cuts the block that is run again
    EngineProbe engine = probe();
    engine.submit(request(prompt(4 * block() + 1), 1));
    engine.drain();
    const RequestId again = engine.submit(request(prompt(4 * block() + 5), 3));
    engine.drain();
    EXPECT_EQ(engine.answer(again).usage.cached_tokens, 4 * block());
    EXPECT_TRUE(engine.answer(again).usage.encoder_replay);
    expect_right(engine);  // compares every shared page with what it held when it was published
  }
}

// A hit of one block is run again from its first token: nothing is cut off, and the bits are those of a cold run.
TEST_P(Replay, AHitOfOneBlockHasTheBitsOfAColdRun) {
  EngineProbe engine = probe();
  const RequestId cold = engine.submit(request(prompt(block() + 5), 6));
  engine.drain();
  const RequestId hit = engine.submit(request(prompt(block() + 5), 6));
  engine.drain();
  const Usage& usage = engine.answer(hit).usage;
  EXPECT_EQ(usage.cached_tokens, block());
  EXPECT_EQ(usage.plans[0].start, 0);
  EXPECT_EQ(usage.plans[0].resume, block());
  EXPECT_EQ(engine.answer(hit).tokens, engine.answer(cold).tokens);
  EXPECT_TRUE(same_bits(engine.answer(hit).logprobs, engine.answer(cold).logprobs));
  expect_right(engine);
}

// All but one token cached: one block and that token run, the reported hit stays.
TEST_P(Replay, TheLongestHit) {
  EngineProbe engine = probe();
  engine.submit(request(prompt(6 * block()), 1));
  engine.drain();
  const int64_t before = engine.core().scheduler().stats().prefill_rows;
  const RequestId hit = engine.submit(request(prompt(6 * block() + 1), window() + 3));
  engine.drain();
  const Usage& usage = engine.answer(hit).usage;
  EXPECT_EQ(usage.cached_tokens, 6 * block());
  EXPECT_EQ(usage.plans[0], (ReplayPlan{.start = 5 * block(),
                                        .resume = 6 * block(),
                                        .decoder_start = 6 * block() + 1 - window(),
                                        .known = 6 * block() + 1}));
  EXPECT_EQ(engine.core().scheduler().stats().prefill_rows - before, block() + 1);
  expect_right(engine);
}

// The cursor and the n-gram rows behind a hit are those of a cold run, at a start of 0 and further on.
TEST_P(Replay, HistoryAcrossTheStart) {
  for (const int64_t blocks : {int64_t{1}, int64_t{2}, int64_t{4}}) {
    std::vector<StepCalls> steps;
    EngineProbe engine = probe(std::make_unique<RecordingOps>(steps));
    const int64_t length = blocks * block() + 3, start = (blocks - 1) * block();
    const RequestId cold = engine.submit(request(prompt(length), 2));
    const SlotCursor cold_cursor = cursor(engine, run_to(engine, cold, 1));
    const StepCalls cold_step = steps.back();
    engine.drain();
    const RequestId hit = engine.submit(request(prompt(length), 2));
    const SlotCursor hit_cursor = cursor(engine, run_to(engine, hit, 1));
    const StepCalls hit_step = steps.back();
    EXPECT_EQ(engine.state(hit)->usage.plans[0].start, start);
    EXPECT_EQ(hit_cursor.position, length);
    EXPECT_TRUE(std::ranges::equal(hit_cursor.history, cold_cursor.history));
    ASSERT_EQ(hit_step.rows, length - start);
    ASSERT_EQ(hit_step.engram.size(), cold_step.engram.size());
    for (size_t i = 0; i < hit_step.engram.size(); ++i) {
      const auto& whole = cold_step.engram[i];
      const auto behind = static_cast<std::ptrdiff_t>(hit_step.engram[i].size());
      EXPECT_TRUE(std::equal(whole.end() - behind, whole.end(), hit_step.engram[i].begin()));
    }
    engine.drain();
  }
}

// In one step: the end of a replayed prompt, a chunk of a cold one that does not finish, a decode.
TEST_P(Replay, OneBatchOfAllKinds) {
  engine_.max_num_batched_tokens = static_cast<int32_t>(3 * block() + 1);
  EngineProbe engine = probe();
  engine.submit(request(prompt(3 * block(), 1), 1));
  engine.drain();
  const RequestId decoding = engine.submit(request(prompt(3, 2), 9));
  run_to(engine, decoding, 2);
  engine.submit(request(prompt(3 * block() + 2, 1), 5));
  const RequestId cold = engine.submit(request(prompt(5 * block(), 3), 5));
  engine.step();
  EXPECT_GT(engine.state(cold)->computed, 0);
  EXPECT_LT(engine.state(cold)->computed, 5 * block());
  expect_right(engine);
}

// Between a chunk that ends inside the block that is run again and the next one.
TEST_P(Replay, CancelAndPreemptLeaveNoTraceInPages) {
  engine_.long_prefill_token_threshold = static_cast<int32_t>(block() / 2);
  engine_.decoder_replay = false;  // a chunk may be shorter than a tail
  for (const bool cancel : {true, false}) {
    EngineProbe engine = probe();
    engine.submit(request(prompt(4 * block() + 1), 1));
    engine.drain();
    const RequestId hit = engine.submit(request(prompt(4 * block() + 7), 3));
    engine.step();
    const RequestState& state = *engine.state(hit);
    ASSERT_EQ(state.usage.cached_tokens, 4 * block());
    ASSERT_LT(state.computed, 4 * block());
    const std::vector<int32_t> shared(state.pages.begin(), state.pages.begin() + 4);
    if (cancel) {
      engine.cancel(hit);
    } else {
      ASSERT_TRUE(engine.core().scheduler().preempt_youngest());
    }
    engine.drain();
    for (const int32_t page : shared) EXPECT_EQ(engine.runner().pages().references(page), 0);
    const RequestId again = engine.submit(request(prompt(4 * block() + 7), 3));
    engine.drain();
    EXPECT_EQ(engine.answer(again).usage.cached_tokens, 4 * block());
    expect_right(engine);
  }
}

TEST_P(Replay, EverySwitch) {
  for (const int mode : {0, 1, 2, 3}) {
    engine_.decoder_replay = (mode & 1) != 0;
    engine_.encoder_replay = (mode & 2) != 0;
    engine_.state_checkpoint_interval = block();
    EngineProbe engine = probe();
    for (int round = 0; round < 2; ++round) {
      engine.submit(request(prompt(5 * block() + 3), 4));
      engine.submit(request(prompt(1), 4));
      engine.drain();
    }
    const Usage& usage = engine.answer(2).usage;
    EXPECT_GT(usage.cached_tokens, 0);
    EXPECT_EQ(usage.encoder_replay, engine_.encoder_replay);
    EXPECT_EQ(usage.plans[0].decoder_start, engine_.decoder_replay ? 5 * block() + 3 - window() : 0);
    expect_right(engine);
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, Replay, testing::Values("nano", "slots"),
                         [](const auto& preset) { return std::string(preset.param); });

}  // namespace
}  // namespace folio
