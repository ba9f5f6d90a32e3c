// The row law as a property: whatever rides along, however a prompt is cut, wherever its pages and slot lie, whichever
// threads work, a request's logits have the bits of its solo run on the same backend.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "engine/sequence.h"
#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "support/small_model.h"

namespace folio {
namespace {

using Random = std::mt19937_64;

int64_t uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Request {
  std::vector<int32_t> tokens;
  int64_t image_first = 0, image_end = 0;  // positions inside an image span
};

// Logits of every position, [tokens, vocab].
using Logits = std::vector<float>;

// Adds the next `rows` positions of a request to the step, all of them head rows.
void add_rows(ModelRunner& runner, Sequence& sequence, const Request& request, int64_t rows) {
  const int64_t first = sequence.position();
  sequence.begin_span(rows);
  for (int64_t p = first; p < first + rows; ++p) {
    runner.builder().add_row({.value = request.tokens[static_cast<size_t>(p)]},
                             p >= request.image_first && p < request.image_end);
    runner.builder().add_head_row();
  }
}

RunnerOptions base_options(const std::string& isa) {
  RunnerOptions options;
  options.isa = isa;
  options.max_model_len = 512;
  options.max_rows = 512;
  options.max_head_rows = 512;
  options.max_num_seqs = 6;
  return options;
}

ModelRunner make_runner(const std::string& preset, const RunnerOptions& options, std::unique_ptr<Ops> ops = nullptr) {
  static std::map<std::string, ModelFiles> files;
  if (!files.contains(preset)) files.emplace(preset, ModelFiles::open(test::small_model(preset)));
  return {files.at(preset), options, std::move(ops)};
}

Logits solo(ModelRunner& runner, const Request& request) {
  Sequence sequence(runner);
  runner.builder().clear();
  add_rows(runner, sequence, request, std::ssize(request.tokens));
  const float* logits = runner.run().logits;
  return {logits, logits + std::ssize(request.tokens) * runner.config().vocab_size};
}

// Runs all requests to their ends in steps of random members and random spans; returns their logits.
std::vector<Logits> together(ModelRunner& runner, const std::vector<Request>& requests, Random& random) {
  // Pages and slots come out of the pools in random order, and hold NaN patterns from before.
  std::memset(runner.pages().data(), 0xff, static_cast<size_t>(runner.pages().bytes()));
  std::memset(runner.states().data(), 0xff, static_cast<size_t>(runner.states().bytes()));
  const auto shuffle = [&](auto& pool) {
    std::vector<int32_t> ids;
    while (const auto id = pool.allocate()) ids.push_back(*id);
    std::shuffle(ids.begin(), ids.end(), random);
    for (const int32_t id : ids) pool.release(id);
  };
  shuffle(runner.pages());
  shuffle(runner.states().ids());

  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < requests.size(); ++i) sequences.push_back(std::make_unique<Sequence>(runner));
  std::vector<Logits> logits(requests.size());
  const auto left = [&](size_t i) { return std::ssize(requests[i].tokens) - sequences[i]->position(); };
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  while (true) {
    std::shuffle(order.begin(), order.end(), random);
    runner.builder().clear();
    std::vector<std::pair<size_t, int64_t>> spans;
    int64_t room = runner.options().max_rows;
    for (const size_t i : order) {
      if (left(i) == 0 || room == 0 || uniform(random, 0, 3) == 0) continue;
      const int64_t most = std::min({left(i), room, uniform(random, 0, 1) == 0 ? int64_t{3} : int64_t{200}});
      const int64_t rows = uniform(random, 1, most);
      add_rows(runner, *sequences[i], requests[i], rows);
      spans.emplace_back(i, rows);
      room -= rows;
    }
    if (!spans.empty()) {
      const float* out = runner.run().logits;
      for (const auto& [i, rows] : spans) {
        const int64_t count = rows * runner.config().vocab_size;
        logits[i].insert(logits[i].end(), out, out + count);
        out += count;
      }
    }
    bool done = true;
    for (size_t i = 0; i < requests.size(); ++i) done = done && left(i) == 0;
    if (done) return logits;
  }
}

std::vector<Request> random_requests(Random& random, int64_t vocab, int64_t longest) {
  std::vector<Request> requests(static_cast<size_t>(uniform(random, 2, 5)));
  for (Request& request : requests) {
    const int64_t length = uniform(random, 1, longest);
    for (int64_t i = 0; i < length; ++i) request.tokens.push_back(static_cast<int32_t>(uniform(random, 3, vocab - 3)));
    if (length > 8 && uniform(random, 0, 2) == 0) {
      request.image_first = uniform(random, 0, length - 4);
      request.image_end = uniform(random, request.image_first + 1, length);
    }
  }
  return requests;
}

// Index of the first float whose bits differ, or -1.
int64_t first_difference(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return static_cast<int64_t>(i);
  }
  return -1;
}

// ISAs that this machine runs.
std::vector<std::string> backends() {
  std::vector<std::string> names;
  for (const char* isa : {"ref", "scalar", "avx2", "avx512bf16"}) {
    try {
      make_runner("nano", base_options(isa));
      names.emplace_back(isa);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
    }
  }
  return names;
}

class RowLaw : public testing::TestWithParam<std::string> {};

void check(const std::string& preset, const std::string& isa, int rounds, int64_t longest) {
  // One for each index plane, which changes scores; bf16 planes hold the values of packed ones.
  const auto make_alone = [&](bool fp8_index) {
    RunnerOptions options = base_options(isa);
    options.threads = 1;
    options.cache_format.fp8_index = fp8_index;
    return make_runner(preset, options);
  };
  ModelRunner alone_fp4 = make_alone(false), alone_fp8 = make_alone(true);
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<uint64_t>(round) + 100);
    RunnerOptions options = base_options(isa);
    options.threads = static_cast<int>(uniform(random, 1, 3));
    options.block_size = std::vector<int32_t>{16, 18, 32, 128, 50}[static_cast<size_t>(uniform(random, 0, 4))];
    options.cache_format = {.packed = uniform(random, 0, 1) == 0, .fp8_index = round % 2 == 1};
    ModelRunner& alone = options.cache_format.fp8_index ? alone_fp8 : alone_fp4;
    ModelRunner crowd = make_runner(preset, options);
    const auto requests = random_requests(random, crowd.config().vocab_size, longest);
    const auto logits = together(crowd, requests, random);
    for (size_t i = 0; i < requests.size(); ++i) {
      const int64_t at = first_difference(solo(alone, requests[i]), logits[i]);
      ASSERT_EQ(at, -1) << preset << " round " << round << " request " << i << ": position "
                        << at / crowd.config().vocab_size << " of " << requests[i].tokens.size() << ", "
                        << crowd.geometry().identity() << ", " << options.threads << " threads";
    }
  }
}

TEST_P(RowLaw, Nano) { check("nano", GetParam(), GetParam() == "ref" ? 2 : 12, 90); }
TEST_P(RowLaw, Slots) { check("slots", GetParam(), GetParam() == "ref" ? 2 : 4, GetParam() == "ref" ? 200 : 400); }
TEST_P(RowLaw, Heads) { check("heads", GetParam(), 2, GetParam() == "ref" ? 20 : 200); }
INSTANTIATE_TEST_SUITE_P(Backends, RowLaw, testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param; });

// Breaks the law on purpose: with more than one row the sum over k is taken in two halves.
class SplitByBatch final : public ReferenceOps {
 public:
  void linear(const LinearArgs& args) override {
    ReferenceOps::linear(args);
    if (args.rows < 2 || args.out_f32 == nullptr) return;
    const int64_t in = args.weight->in(), out = args.weight->out();
    const auto* values = static_cast<const HostWeight&>(*args.weight).values;
    for (int64_t i = 0; i < args.rows * out; ++i) {
      const bf16* x = args.x + i / out * in;
      const bf16* w = values + i % out * in;
      float halves[2] = {0, 0};
      for (int64_t k = 0; k < in; ++k) halves[k < in / 2 ? 0 : 1] += to_float(x[k]) * to_float(w[k]);
      args.out_f32[i] = halves[0] + halves[1];
    }
  }
};

TEST(RowLawChecker, CatchesASumThatIsSplitByBatch) {
  Random random(1);
  ModelRunner alone = make_runner("nano", base_options("ref"), std::make_unique<SplitByBatch>());
  ModelRunner crowd = make_runner("nano", base_options("ref"), std::make_unique<SplitByBatch>());
  std::vector<Request> requests = random_requests(random, crowd.config().vocab_size, 40);
  requests[0].tokens.resize(1);  // alone it is one row, in company it is not
  const auto logits = together(crowd, requests, random);
  bool caught = false;
  for (size_t i = 0; i < requests.size(); ++i) caught |= first_difference(solo(alone, requests[i]), logits[i]) >= 0;
  EXPECT_TRUE(caught);
}

}  // namespace
}  // namespace folio
