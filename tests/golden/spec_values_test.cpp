// The check values that spec/model.md prints, through the ops of every backend: Sinkhorn (4.5), router (7), Engram
// gates (8.4) and hash rows (8.5).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "checkpoint/presets.h"
#include "model/engram_hash.h"
#include "op_runner.h"

namespace folio::golden {
namespace {

constexpr int64_t kHidden = 64;
constexpr int32_t kStreams = 4;
const bf16 kOne = to_bf16(1.0f);

TensorView view(const std::vector<float>& values, const Shape& shape) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, shape};
}

TensorView view(const std::vector<bf16>& values, const Shape& shape) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kBF16, shape};
}

class SpecValues : public testing::TestWithParam<std::string> {
 protected:
  SpecValues() : ops_(make_backend(GetParam())) {
    ops_->reserve({.max_rows = 16,
                   .max_linear_in = kHidden,
                   .hidden = kHidden,
                   .expert_inner = 32,
                   .max_experts = 16,
                   .max_topk_experts = 8,
                   .heads = 1,
                   .head_dim = 64,
                   .list_length = 128,
                   .index_heads = 1,
                   .index_dim = 32,
                   .max_visible = 64,
                   .vocab = 64});
  }
  WeightHandle vector(const std::vector<float>& values, const Shape& shape) {
    return ops_->prepare(WeightKind::kVector, {.weight = view(values, shape), .scale = {}});
  }

  std::unique_ptr<Ops> ops_;
};

INSTANTIATE_TEST_SUITE_P(Backends, SpecValues, testing::ValuesIn(backend_names()),
                         [](const auto& backend) { return backend.param; });

// --- Sinkhorn, 4.5 ---------------------------------------------------------------------------------------------------

struct Mix {
  std::array<float, 4> pre, post;
  std::array<float, 16> comb;
};

// Streams of ones have norm 1, so that the first column of `fn` alone makes m.
Mix mix_of_spec(Ops& ops, float comb_scale) {
  const int64_t width = kStreams * kHidden, count = (2 + kStreams) * kStreams;
  std::vector<float> fn(static_cast<size_t>(count * width), 0.0f), base;
  for (int64_t j = 0; j < count; ++j) {
    fn[static_cast<size_t>(j * width)] = static_cast<float>(37 * j % 23 - 11) / 8;
    base.push_back(static_cast<float>(5 * j % 7 - 3) / 10);
  }
  const std::vector<float> scale = {0.5f, 0.75f, comb_scale};
  const WeightHandle prepared_fn = ops.prepare(WeightKind::kF32, {.weight = view(fn, {count, width}), .scale = {}});
  const WeightHandle prepared_scale = ops.prepare(WeightKind::kVector, {.weight = view(scale, {3}), .scale = {}});
  const WeightHandle prepared_base = ops.prepare(WeightKind::kVector, {.weight = view(base, {count}), .scale = {}});
  const std::vector<bf16> streams(static_cast<size_t>(width), kOne);
  Mix mix{};
  ops.hyper_mix({.streams = streams.data(),
                 .fn = prepared_fn.get(),
                 .scale = prepared_scale.get(),
                 .base = prepared_base.get(),
                 .rows = 1,
                 .num_streams = kStreams,
                 .hidden = kHidden,
                 .iterations = 20,
                 .hc_eps = 1e-6f,
                 .norm_eps = 1e-20f,
                 .pre = mix.pre.data(),
                 .post = mix.post.data(),
                 .comb = mix.comb.data()});
  return mix;
}

TEST_P(SpecValues, SinkhornConverged) {
  const Mix mix = mix_of_spec(*ops_, 1.25f);
  const std::array<float, 4> pre = {.2714072f, .5956817f, .40733442f, .5744435f};
  const std::array<float, 4> post = {1.102761f, .6041231f, 1.13664f, .63349915f};
  const std::array<float, 16> comb = {.47222832f, .04134195f, .0142016f,  .4722272f,  .15929207f, .50719154f,
                                      .17422278f, .15929267f, .23309718f, .02040708f, .5133977f,  .23309709f,
                                      .13538146f, .4310585f,  .29817694f, .13538204f};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(mix.pre[i], pre[i], 2e-7f) << i;
    EXPECT_NEAR(mix.post[i], post[i], 4e-7f) << i;
  }
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(mix.comb[i], comb[i], 1e-6f) << i;
}

TEST_P(SpecValues, SinkhornNotConvergedEndsWithColumns) {
  const Mix mix = mix_of_spec(*ops_, 9.0f);
  const std::array<float, 16> comb = {.8480355f,   1e-9f,      2.5e-8f,     .1515745f, .03403219f, .5067294f,
                                      .028264657f, .42200345f, .084802136f, 1e-9f,     .91715324f, .015613374f,
                                      .033129152f, .49326968f, .05458102f,  .4108077f};
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(mix.comb[i], comb[i], 2e-6f) << i;
  for (size_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(mix.comb[j] + mix.comb[4 + j] + mix.comb[8 + j] + mix.comb[12 + j], 1 - 1e-6f, 5e-7f) << j;
  }
}

// --- router, 7 -------------------------------------------------------------------------------------------------------

struct Routing {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// One row whose router logits are `z`.
Routing route(Ops& ops, const std::vector<float>& z, const std::vector<float>& bias, int32_t k, bool normalise,
              float scale, bool image = false) {
  const auto experts = std::ssize(z);
  std::vector<bf16> gate(static_cast<size_t>(experts * kHidden), bf16{0}), x(kHidden, bf16{0});
  x[0] = kOne;
  for (int64_t e = 0; e < experts; ++e) gate[static_cast<size_t>(e * kHidden)] = to_bf16(z[static_cast<size_t>(e)]);
  const std::vector<float> zeros(bias.size(), 0.0f);
  const WeightHandle prepared_gate =
      ops.prepare(WeightKind::kBf16, {.weight = view(gate, {experts, kHidden}), .scale = {}});
  const WeightHandle prepared_bias = ops.prepare(WeightKind::kVector, {.weight = view(bias, {experts}), .scale = {}});
  const WeightHandle no_bias = ops.prepare(WeightKind::kVector, {.weight = view(zeros, {experts}), .scale = {}});
  const uint8_t mask = image;
  Routing routing{.ids = std::vector<int32_t>(static_cast<size_t>(k)),
                  .weights = std::vector<float>(static_cast<size_t>(k))};
  ops.route({.x = x.data(),
             .gate = prepared_gate.get(),
             .bias = image ? no_bias.get() : prepared_bias.get(),
             .bias_image = image ? prepared_bias.get() : no_bias.get(),
             .image = &mask,
             .rows = 1,
             .k = k,
             .normalise = normalise,
             .scale = scale,
             .ids = routing.ids.data(),
             .weights = routing.weights.data()});
  return routing;
}

TEST_P(SpecValues, SquareRootOfSoftplus) {
  const std::vector<float> z = {-30, -10, -1, 0, 1, 10, 25};
  const std::vector<float> want = {3.05902e-7f, 6.7378705e-3f, .559697854f, .832554611f, 1.1459763f, 3.16228484f, 5};
  // Half a unit of the last digit that the specification prints, and one of fp32.
  const std::vector<float> tolerance = {5e-13f, 1e-9f, 6e-8f, 6e-8f, 2e-7f, 3e-7f, 5e-7f};
  const Routing routing = route(*ops_, z, std::vector<float>(7, 0.0f), 7, false, 1);
  for (size_t e = 0; e < z.size(); ++e) {
    EXPECT_EQ(routing.ids[e], static_cast<int32_t>(e));
    EXPECT_NEAR(routing.weights[e], want[e], tolerance[e]) << z[e];
  }
}

TEST_P(SpecValues, RouterBiasSteersAndDoesNotWeigh) {
  // Affinities 1.1459763 at z = 1 and .832554611 at z = 0; the biases make experts 1 and 3 win.
  const std::vector<float> z = {1, 0, 1, 0}, bias = {0, 2, 0, 2};
  for (const bool image : {false, true}) {
    const Routing routing = route(*ops_, z, bias, 2, true, 1.5f, image);
    EXPECT_EQ(routing.ids, (std::vector<int32_t>{1, 3}));
    EXPECT_NEAR(routing.weights[0], 0.75f, 1e-6f);
    EXPECT_NEAR(routing.weights[1], 0.75f, 1e-6f);
  }
}

TEST_P(SpecValues, RouterTiesGoToTheLowestId) {
  const Routing routing = route(*ops_, std::vector<float>(8, 1.0f), std::vector<float>(8, 0.0f), 3, true, 1);
  EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 1, 2}));
}

// --- Engram gates, 8.4 -----------------------------------------------------------------------------------------------

// Gates of four streams whose dots are `dots`: streams and keys of ones have norm 1, so that the first products of the
// weights alone make the dots.
std::array<float, 4> gates(Ops& ops, const std::array<float, 4>& dots, bool image) {
  std::vector<float> q(kStreams * kHidden, 0.0f), k(kStreams * kHidden, 0.0f);
  for (size_t s = 0; s < kStreams; ++s) {
    q[s * kHidden] = dots[s] * 8;  // the dot is scaled by 64^-0.5
    k[s * kHidden] = 1;
  }
  const Shape shape = {kStreams, kHidden};
  const WeightHandle q_weight = ops.prepare(WeightKind::kVector, {.weight = view(q, shape), .scale = {}});
  const WeightHandle k_weight = ops.prepare(WeightKind::kVector, {.weight = view(k, shape), .scale = {}});
  std::vector<bf16> streams(kStreams * kHidden, kOne), kv((kStreams + 1) * kHidden, kOne);
  std::array<float, 4> gate{};
  const uint8_t mask = image;
  ops.engram_inject({.streams = streams.data(),
                     .kv = kv.data(),
                     .q_weight = q_weight.get(),
                     .k_weight = k_weight.get(),
                     .image = &mask,
                     .rows = 1,
                     .num_streams = kStreams,
                     .hidden = kHidden,
                     .norm_eps = 1e-20f,
                     .gate = gate.data()});
  for (size_t s = 0; s < kStreams; ++s) {
    EXPECT_EQ(to_float(streams[s * kHidden]), bf16_round(1 + gate[s])) << s;
  }
  return gate;
}

TEST_P(SpecValues, EngramGates) {
  const auto small = gates(*ops_, {0.0f, -1e-8f, 0.25f, -0.25f}, false);
  EXPECT_NEAR(small[0], .50025f, 1e-7f);
  EXPECT_NEAR(small[1], .49975f, 1e-7f);
  EXPECT_NEAR(small[2], .622459331f, 1e-7f);
  EXPECT_NEAR(small[3], .377540669f, 1e-7f);
  const auto large = gates(*ops_, {4.0f, -4.0f, 4.0f, -4.0f}, false);
  EXPECT_NEAR(large[0], .880797078f, 1e-7f);
  EXPECT_NEAR(large[1], .119202922f, 1e-7f);
  EXPECT_EQ(gates(*ops_, {4.0f, -4.0f, 0.25f, 0.0f}, true), (std::array<float, 4>{}));
}

// --- hash rows, 8.5 --------------------------------------------------------------------------------------------------

struct HashRows {
  std::vector<int64_t> rows;  // [2 layers, positions, 24]
  int64_t positions;

  std::vector<int64_t> columns(int layer, int64_t position, int64_t first, int64_t last) const {
    const auto begin = rows.begin() + (layer * positions + position) * 24;
    return {begin + first, begin + last + 1};
  }
};

// Rows of the published tables for a sequence of compressed ids; `dead`: a position inside an image span, or -1. In one
// step, or one position a step.
HashRows hash_rows(Ops& ops, const std::vector<int32_t>& ids, int64_t dead, bool one_by_one) {
  static const Config config = parse_config(published_config_json(), "published");
  std::vector<int32_t> identity(static_cast<size_t>(config.engram_compressed_vocab_size));
  std::iota(identity.begin(), identity.end(), 0);
  const EngramHashTables tables(config, identity);
  const auto n = ids.size();
  HashRows result{.rows = std::vector<int64_t>(2 * n * 24), .positions = std::ssize(ids)};
  std::vector<RowInput> inputs;
  for (const int32_t id : ids) inputs.push_back({.value = id});
  std::vector<uint8_t> image(n, 0), step_image(n, 0);
  if (dead >= 0) image[static_cast<size_t>(dead)] = 1;
  const std::vector<int32_t> request(n, 0);
  std::vector<int32_t> out_ids(n), positions(n), compressed(n);
  const float frequency = 1;
  std::vector<float> plain(2 * n), scaled(2 * n), group(2 * n);
  SlotCursor cursor;
  for (size_t first = 0; first < n; first += one_by_one ? 1 : n) {
    const auto count = static_cast<int32_t>(one_by_one ? 1 : n);
    const RequestSpan span{.num_rows = count, .restart = first == 0};
    const StepInputs step{.num_rows = count,
                          .num_requests = 1,
                          .row_inputs = inputs.data() + first,
                          .row_image = image.data() + first,
                          .row_request = request.data(),
                          .spans = &span};
    ops.begin_step({.inputs = step,
                    .cursors = reinterpret_cast<std::byte*>(&cursor),
                    .cursor_stride = sizeof cursor,
                    .engram = tables.view(),
                    .rope_pairs = 1,
                    .plain_frequencies = &frequency,
                    .scaled_frequencies = &frequency,
                    .ids = out_ids.data() + first,
                    .positions = positions.data() + first,
                    .image = step_image.data() + first,
                    .compressed = compressed.data() + first,
                    .engram_rows = result.rows.data() + first * 24,
                    .engram_layer_stride = std::ssize(ids) * 24,
                    .rope_plain = plain.data() + 2 * first,
                    .rope_scaled = scaled.data() + 2 * first,
                    .rope_group = group.data() + 2 * first});
    ops.commit({.inputs = step,
                .cursors = reinterpret_cast<std::byte*>(&cursor),
                .cursor_stride = sizeof cursor,
                .compressed = compressed.data() + first});
  }
  return result;
}

using Columns = std::vector<int64_t>;

TEST_P(SpecValues, HashRows) {
  for (const bool one_by_one : {false, true}) {
    const HashRows hashed = hash_rows(*ops_, {0, 1, 2, 3, 3, 5, 6, 2}, -1, one_by_one);
    EXPECT_EQ(hashed.columns(0, 0, 0, 7),
              (Columns{5702652, 24393184, 39183301, 61503783, 78984481, 90144770, 103724983, 121476532}));
    EXPECT_EQ(hashed.columns(1, 0, 21, 23), (Columns{349372619, 363873742, 372375971}));
    EXPECT_EQ(hashed.columns(1, 7, 16, 23),
              (Columns{268919976, 284758592, 295300181, 311247301, 332385578, 348067885, 358717528, 379964135}));
  }
}

TEST_P(SpecValues, HashRowsAroundADeadPosition) {
  for (const bool one_by_one : {false, true}) {
    const HashRows hashed = hash_rows(*ops_, {0, 1, 2, 3, 3, 5, 6, 2}, 3, one_by_one);
    EXPECT_EQ(hashed.columns(0, 3, 0, 7),
              (Columns{4299726, 29253038, 43157972, 58397134, 65256332, 88876378, 100686433, 112312540}));
    EXPECT_EQ(hashed.columns(0, 4, 8, 15),
              (Columns{143450283, 146576661, 168605081, 191902092, 196072724, 214158605, 233287660, 246388310}));
  }
}

TEST_P(SpecValues, HashRowsOfTheLargestId) {
  for (const bool one_by_one : {false, true}) {
    const HashRows hashed = hash_rows(*ops_, {3, 5, 6, 99091}, -1, one_by_one);
    EXPECT_EQ(hashed.columns(0, 3, 0, 7),
              (Columns{15672048, 27492831, 44536752, 61430128, 67245325, 92777285, 106967037, 124423542}));
    EXPECT_EQ(hashed.columns(1, 3, 16, 23),
              (Columns{265618604, 274899440, 293859038, 305129534, 330597110, 351352894, 361609284, 368033517}));
  }
}

}  // namespace
}  // namespace folio::golden
