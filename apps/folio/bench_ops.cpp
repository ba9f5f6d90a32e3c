// folio bench ops: every op that matters at the shapes of the bench-cpu preset, as a fraction of what the machine can
// read or multiply in the same run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "bench.h"
#include "ops/cpu/probe.h"
#include "ops/ops.h"
#include "tensor/buffer.h"

namespace folio {
namespace {

using nlohmann::ordered_json;

struct OpsFlags {
  std::string isa;
  int threads = 0;
  std::string only;
  bool json = false;
};

// One measurement: what one call of `run` moves and computes.
struct Measured {
  std::string name;
  double bytes = 0;  // of weights and cache rows: what must come from memory
  double flops = 0;
  double seconds = 0;
  double keys = 0;  // of an index selection: keys times rows
};

// Random bytes as tensors, in memory larger than the caches where the case asks for several copies.
class Tensors {
 public:
  explicit Tensors(Device& device) : device_(device) {}

  std::byte* bytes(int64_t count, uint64_t mask = ~uint64_t{0}, uint64_t base = 0) {
    buffers_.emplace_back(device_, (count + 63) / 64 * 64);
    auto* words = buffers_.back().as<uint64_t>();
    uint64_t state = ++seed_;
    for (int64_t i = 0; i < buffers_.back().bytes() / 8; ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      words[i] = (state & mask) + base;
    }
    return buffers_.back().data();
  }
  // bf16 values of about one, both signs.
  bf16* activations(int64_t count) {
    return reinterpret_cast<bf16*>(bytes(2 * count, 0x80ff80ff80ff80ffull, 0x3f003f003f003f00ull));
  }
  WeightViews fp8(int64_t out, int64_t in) {
    return {{bytes(out * in, 0xbfbfbfbfbfbfbfbfull), DType::kF8E4M3, {out, in}},
            {scales((out + 31) / 32 * (in / 32)), DType::kF8E8M0, {(out + 31) / 32, in / 32}}};
  }
  WeightViews fp4(int64_t out, int64_t in) {
    return {{bytes(out * in / 2), DType::kI8, {out, in / 2}}, {scales(out * in / 32), DType::kF8E8M0, {out, in / 32}}};
  }
  WeightViews bf16_matrix(int64_t out, int64_t in) {
    return {{reinterpret_cast<std::byte*>(activations(out * in)), DType::kBF16, {out, in}}, {}};
  }
  WeightViews floats(int64_t out, int64_t in) {
    const std::byte* data = bytes(4 * out * in, 0x8000ffff8000ffffull, 0x3c0000003c000000ull);
    return {{data, DType::kF32, out == 1 ? Shape{in} : Shape{out, in}}, {}};
  }

 private:
  std::byte* scales(int64_t count) { return bytes(count, 0x0303030303030303ull, 0x7474747474747474ull); }

  Device& device_;
  std::vector<Buffer> buffers_;
  uint64_t seed_ = 0x9e3779b97f4a7c15ull;
};

// The shapes of the bench-cpu preset.
constexpr int64_t kHidden = 1024, kInner = 896, kQueryRank = 384, kHeadDim = 512, kGroups = 4, kRank = 256;
constexpr int64_t kVocab = 16384, kEngramIn = 6144;
constexpr int32_t kHeads = 16, kExperts = 64, kTopExperts = 6, kWindow = 128, kTopk = 512, kStreams = 4;
constexpr int32_t kIndexHeads = 16, kIndexDim = 64;
constexpr int32_t kPublishedIndexHeads = 32, kPublishedIndexDim = 128;
constexpr int64_t kMaxRows = 512, kContext = 262144;
constexpr int64_t kColdBytes = int64_t{192} << 20;  // weights that are walked before one is met again

class Bench {
 public:
  explicit Bench(const OpsFlags& flags) : flags_(flags), device_(make_cpu_device()), data_(*device_) {
    ops_ = make_cpu_ops({flags.isa, flags.threads});
    OpsLimits limits;
    limits.max_rows = kMaxRows;
    limits.max_linear_in = kEngramIn;
    limits.hidden = kHidden;
    limits.expert_inner = kInner;
    limits.max_experts = kExperts;
    limits.max_topk_experts = kTopExperts;
    limits.heads = kHeads;
    limits.head_dim = kHeadDim;
    limits.list_length = kWindow + kTopk;
    limits.index_heads = kPublishedIndexHeads;
    limits.index_dim = kPublishedIndexDim;
    limits.index_format = RowFormat::kFp8Index;
    limits.max_visible = kContext;
    limits.vocab = kVocab;
    ops_->reserve(limits);
    x_ = data_.activations(kMaxRows * kEngramIn * 2);
    y_ = data_.activations(kMaxRows * kVocab);
  }

  std::string isa() const { return ops_->name(); }

  std::vector<Measured> run() {
    for (const int64_t rows : {int64_t{1}, int64_t{4}, int64_t{512}}) {
      linear("wq_a", WeightKind::kFp8, kQueryRank, kHidden, rows);
      linear("wq_b", WeightKind::kFp8, kHeads * kHeadDim, kQueryRank, rows);
      linear("wkv", WeightKind::kFp8, kHeadDim, kHidden, rows);
      linear("wo_b", WeightKind::kFp8, kHidden, kGroups * kRank, rows);
      linear("engram.wkv", WeightKind::kFp8, 5 * kHidden, kEngramIn, rows);
      linear("compressor", WeightKind::kBf16, kHeadDim, kHidden, rows);
      if (rows <= 4) linear("head", WeightKind::kBf16, kVocab, kHidden, rows);
      grouped(rows);
      experts(rows);
      mix(rows);
      norm(rows);
      attend(rows);
    }
    for (const RowFormat format : {RowFormat::kFp4Index, RowFormat::kFp8Index}) {
      for (const int64_t keys : {int64_t{4096}, int64_t{32768}, kContext})
        index(format, kIndexHeads, kIndexDim, keys, 1);
      for (const int64_t keys : {int64_t{4096}, int64_t{32768}, kContext}) {
        index(format, kPublishedIndexHeads, kPublishedIndexDim, keys, 1);
      }
      index(format, kIndexHeads, kIndexDim, 8192, 64);
    }
    if (measured_.empty()) {
      fail(ErrorCode::kInvalidArgument, "--only ", flags_.only, ": no op begins like this; there are ", names_);
    }
    return measured_;
  }

 private:
  bool wanted(const std::string& name) {
    if (names_.find(name) == std::string::npos) names_ += (names_.empty() ? "" : ", ") + name;
    return name.starts_with(flags_.only);
  }

  // Seconds of one call: the best of many short batches, as for the probes. What disturbs a batch only makes it slower.
  void measure(const std::string& name, double bytes, double flops, const std::function<void(int64_t)>& call,
               double keys = 0) {
    constexpr double kBatchSeconds = 0.002, kSeconds = 0.25;
    int64_t calls = 0;
    double best = 1e30;
    const double start = now_seconds();
    for (int64_t rounds = 0; rounds < 5 || now_seconds() - start < kSeconds; ++rounds) {
      const double begin = now_seconds();
      const int64_t first = calls;
      while (now_seconds() - begin < kBatchSeconds) call(calls++);
      best = std::min(best, (now_seconds() - begin) / static_cast<double>(calls - first));
    }
    measured_.push_back({name, bytes, flops, best, keys});
  }

  static std::string named(const std::string& op, int64_t rows) { return op + " x" + std::to_string(rows); }

  void linear(const std::string& op, WeightKind kind, int64_t out, int64_t in, int64_t rows) {
    if (!wanted(op)) return;
    const int64_t bytes = kind == WeightKind::kFp8 ? out * in + out * in / 1024 : 2 * out * in;
    std::vector<WeightHandle> weights;
    for (int64_t total = 0; total < kColdBytes; total += bytes) {
      weights.push_back(
          ops_->prepare(kind, kind == WeightKind::kFp8 ? data_.fp8(out, in) : data_.bf16_matrix(out, in)));
      if (rows > 64 && weights.size() == 4) break;
    }
    measure(named(op, rows), static_cast<double>(bytes), 2.0 * static_cast<double>(rows * out * in), [&](int64_t i) {
      LinearArgs args;
      args.weight = weights[static_cast<size_t>(i) % weights.size()].get();
      args.x = x_;
      args.rows = rows;
      args.out = y_;
      if (kind == WeightKind::kFp8) {
        ops_->quantized_linear(args);
      } else {
        ops_->linear(args);
      }
    });
  }

  void grouped(int64_t rows) {
    if (!wanted("wo_a")) return;
    const int64_t in = kHeads * kHeadDim / kGroups, out = kGroups * kRank;
    std::vector<WeightHandle> weights;
    for (int64_t total = 0; total < kColdBytes; total += out * in) {
      weights.push_back(ops_->prepare(WeightKind::kFp8, data_.fp8(out, in)));
      if (rows > 64 && weights.size() == 4) break;
    }
    measure(named("wo_a", rows), static_cast<double>(out * in), 2.0 * static_cast<double>(rows * out * in),
            [&](int64_t i) {
              GroupedLinearArgs args;
              args.weight = weights[static_cast<size_t>(i) % weights.size()].get();
              args.groups = kGroups;
              args.x = x_;
              args.rows = rows;
              args.out = y_;
              ops_->grouped_linear(args);
            });
  }

  void experts(int64_t rows) {
    if (!wanted("experts")) return;
    constexpr int64_t kLayers = 3;
    std::vector<WeightHandle> weights;
    weights.reserve(kLayers);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<ExpertViews> routed;
      routed.reserve(kExperts);
      for (int32_t e = 0; e < kExperts; ++e) {
        routed.push_back({data_.fp4(kInner, kHidden), data_.fp4(kInner, kHidden), data_.fp4(kHidden, kInner)});
      }
      weights.push_back(ops_->prepare_experts(
          routed, {data_.fp8(kInner, kHidden), data_.fp8(kInner, kHidden), data_.fp8(kHidden, kInner)}));
    }
    // Eight different routings, so that one row meets cold experts.
    constexpr int64_t kRoutings = 8;
    std::vector<int32_t> ids;
    std::vector<float> expert_weights(static_cast<size_t>(kMaxRows * kTopExperts), 0.25f);
    std::vector<double> distinct;
    distinct.reserve(kRoutings);
    for (int64_t routing = 0; routing < kRoutings; ++routing) {
      std::vector<bool> used(kExperts, false);
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<int32_t> row;
        for (uint64_t draw = 0; row.size() < kTopExperts; ++draw) {
          const auto id = static_cast<int32_t>(random_bits(5, static_cast<uint64_t>(routing * kMaxRows + r), draw) %
                                               static_cast<uint64_t>(kExperts));
          if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
        }
        std::sort(row.begin(), row.end());
        for (const int32_t id : row) used[static_cast<size_t>(id)] = true;
        ids.insert(ids.end(), row.begin(), row.end());
      }
      distinct.push_back(static_cast<double>(std::count(used.begin(), used.end(), true)));
    }
    double mean = 0;
    for (const double n : distinct) mean += n / kRoutings;
    const double per_expert = 3.0 * kInner * kHidden;
    measure(named("experts", rows), per_expert * (mean * 17 / 32 + 1),
            2.0 * per_expert * static_cast<double>(rows * (kTopExperts + 1)), [&](int64_t i) {
              ExpertsArgs args;
              args.experts = weights[static_cast<size_t>(i % kLayers)].get();
              args.x = x_;
              args.ids = ids.data() + i % kRoutings * rows * kTopExperts;
              args.weights = expert_weights.data();
              args.rows = rows;
              args.k = kTopExperts;
              args.limit = 10;
              args.out = y_;
              ops_->experts(args);
            });
  }

  void mix(int64_t rows) {
    if (!wanted("hyper_mix")) return;
    const int64_t outputs = (2 + kStreams) * kStreams, width = kStreams * kHidden;
    const size_t copies = rows > 64 ? 4 : 400;
    std::vector<WeightHandle> weights;
    weights.reserve(copies);
    for (size_t i = 0; i < copies; ++i) {
      weights.push_back(ops_->prepare(WeightKind::kF32, data_.floats(outputs, width)));
    }
    const WeightHandle scale = ops_->prepare(WeightKind::kVector, data_.floats(1, 3));
    const WeightHandle base = ops_->prepare(WeightKind::kVector, data_.floats(1, outputs));
    std::vector<float> coefficients(static_cast<size_t>(kMaxRows * 24));
    measure(named("hyper_mix", rows), 4.0 * static_cast<double>(outputs * width),
            2.0 * static_cast<double>(rows * outputs * width), [&](int64_t i) {
              HyperMixArgs args;
              args.streams = x_;
              args.fn = weights[static_cast<size_t>(i) % weights.size()].get();
              args.scale = scale.get();
              args.base = base.get();
              args.rows = rows;
              args.num_streams = kStreams;
              args.hidden = kHidden;
              args.iterations = 20;
              args.hc_eps = 1e-6f;
              args.norm_eps = 1e-20f;
              args.pre = coefficients.data();
              args.post = args.pre + rows * kStreams;
              args.comb = args.post + rows * kStreams;
              ops_->hyper_mix(args);
            });
  }

  void norm(int64_t rows) {
    if (!wanted("rms_norm")) return;
    const WeightHandle weight = ops_->prepare(WeightKind::kVector, data_.floats(1, kHidden));
    measure(named("rms_norm", rows), 4.0 * static_cast<double>(rows * kHidden),
            4.0 * static_cast<double>(rows * kHidden),
            [&](int64_t) { ops_->rms_norm({x_, weight.get(), 1e-20f, rows, kHidden, y_}); });
  }

  // A full list for every row: the last window and the selection's 512 entries.
  void attend(int64_t rows) {
    if (!wanted("attend")) return;
    const auto count = static_cast<int32_t>(rows);
    const int32_t start = 2048, entries = start + count;
    PagedRows main;
    main.format = RowFormat::kFp4Main;
    main.dim = static_cast<int32_t>(kHeadDim);
    main.rows_per_page = 128;
    main.code_stride = kHeadDim / 2;
    main.scale_stride = kHeadDim / 16;
    main.scales_offset = 128 * main.code_stride;
    main.page_stride = 128 * (main.code_stride + main.scale_stride);
    const int32_t pages = entries / 128 + 1;
    main.base = data_.bytes(pages * main.page_stride, 0x3737373737373737ull);
    RingRows ring;
    ring.format = RowFormat::kFp8Window;
    ring.dim = static_cast<int32_t>(kHeadDim);
    ring.ring_rows = kWindow;
    ring.row_stride = kHeadDim + kHeadDim / 32;
    ring.slot_stride = ring.row_stride * kWindow;
    ring.base = data_.bytes(ring.slot_stride, 0x0707070707070707ull, 0x7070707070707070ull);
    const std::byte* encoded = data_.bytes(rows * ring.row_stride, 0x0707070707070707ull, 0x7070707070707070ull);
    std::vector<int32_t> table, position, request(static_cast<size_t>(rows), 0), selected;
    for (int32_t p = 0; p < pages; ++p) table.push_back(pages - 1 - p);
    for (int32_t r = 0; r < count; ++r) {
      position.push_back(start + r);
      for (int32_t i = 0; i < kTopk; ++i) selected.push_back(i * 4 + r % 4);
    }
    const RequestSpan span{0, count, 0, 0, -1};
    const WeightHandle sink = ops_->prepare(WeightKind::kVector, data_.floats(1, kHeads));
    AttendArgs args;
    args.rows = {count, 1, &span, request.data(), position.data(), nullptr, table.data(), pages};
    args.query = x_;
    args.encoded = encoded;
    args.ring = ring;
    args.window = kWindow;
    args.main = main;
    args.selected = selected.data();
    args.topk = kTopk;
    args.sink = sink.get();
    args.heads = kHeads;
    args.dim = static_cast<int32_t>(kHeadDim);
    args.out = y_;
    const double slots = static_cast<double>(rows) * (kWindow + kTopk);
    measure(named("attend", rows), slots * (kHeadDim * 0.5625), slots * 4 * kHeads * kHeadDim,
            [&](int64_t) { ops_->attend(args); });
  }

  // Keys that are there already, in pages; every row sees all of them.
  void index(RowFormat format, int32_t heads, int32_t dim, int64_t keys, int64_t rows) {
    if (!wanted("index_select")) return;
    const auto count = static_cast<int32_t>(rows);
    PagedRows plane;
    plane.format = format;
    plane.dim = dim;
    plane.rows_per_page = 128;
    plane.code_stride = code_bytes(format, dim);
    plane.scale_stride = scale_bytes(format, dim);
    plane.scales_offset = 128 * plane.code_stride;
    plane.page_stride = 128 * (plane.code_stride + plane.scale_stride);
    const auto pages = static_cast<int32_t>((keys + rows) / 128 + 1);
    // Bytes near 0x77: scales of about one, codes of several magnitudes.
    plane.base = data_.bytes(pages * plane.page_stride, 0x0707070707070707ull, 0x7070707070707070ull);
    std::vector<int32_t> table, position, request(static_cast<size_t>(rows), 0);
    for (int32_t p = 0; p < pages; ++p) table.push_back(p);
    for (int32_t r = 0; r < count; ++r) position.push_back(static_cast<int32_t>(keys - rows) + r);
    std::vector<int32_t> selected(static_cast<size_t>(rows * kTopk));
    const RequestSpan span{0, count, 0, 0, -1};
    IndexSelectArgs args;
    args.rows = {count, 1, &span, request.data(), position.data(), nullptr, table.data(), pages};
    args.query = x_;
    args.head_weights = x_;
    args.heads = heads;
    args.keys = plane;
    args.topk = kTopk;
    args.selected = selected.data();
    const auto pairs = static_cast<double>(keys * rows);
    const std::string name = concat("index_select ", format == RowFormat::kFp8Index ? "fp8 " : "fp4 ", heads, "x", dim,
                                    " ", keys / 1024, "k");
    measure(
        named(name, rows), static_cast<double>(keys * (plane.code_stride + plane.scale_stride)),
        pairs * 2 * heads * dim, [&](int64_t) { ops_->index_select(args); }, pairs);
  }

  const OpsFlags& flags_;
  std::string names_;  // of all ops
  std::unique_ptr<Device> device_;
  Tensors data_;
  std::unique_ptr<Ops> ops_;
  bf16 *x_ = nullptr, *y_ = nullptr;
  std::vector<Measured> measured_;
};

void run_bench_ops(const OpsFlags& flags) {
  const CpuProbe probe = probe_cpu({flags.isa, flags.threads});
  Bench bench(flags);
  const std::vector<Measured> measured = bench.run();
  if (flags.json) {
    ordered_json json{{"isa", bench.isa()},
                      {"probe", {{"read_gb_s", probe.read_gb_s}, {"bf16_gflop_s", probe.bf16_gflop_s}}},
                      {"ops", ordered_json::array()}};
    for (const Measured& m : measured) {
      ordered_json& op = json["ops"];
      op.push_back({{"name", m.name},
                    {"microseconds", m.seconds * 1e6},
                    {"gb_s", m.bytes / m.seconds / 1e9},
                    {"gflop_s", m.flops / m.seconds / 1e9},
                    {"bandwidth_fraction", m.bytes / m.seconds / 1e9 / probe.read_gb_s},
                    {"dot_fraction", m.flops / m.seconds / 1e9 / probe.bf16_gflop_s}});
      if (m.keys > 0) op.back()["nanoseconds_per_key"] = 1e9 * m.seconds / m.keys;
    }
    std::cout << json.dump() << '\n';
    return;
  }
  std::printf("%s: reads %.1f GB/s, multiplies %.0f GFLOP/s\n\n", bench.isa().c_str(), probe.read_gb_s,
              probe.bf16_gflop_s);
  std::printf("%-34s %12s %10s %10s %12s %12s\n", "op", "us", "GB/s", "GFLOP/s", "of bandwidth", "of dot peak");
  for (const Measured& m : measured) {
    const double gb = m.bytes / m.seconds / 1e9, gflop = m.flops / m.seconds / 1e9;
    std::printf("%-34s %12.1f %10.1f %10.0f %11.0f%% %11.0f%%", m.name.c_str(), m.seconds * 1e6, gb, gflop,
                100 * gb / probe.read_gb_s, 100 * gflop / probe.bf16_gflop_s);
    if (m.keys > 0) std::printf("  %.1f ns/key", 1e9 * m.seconds / m.keys);
    std::putchar('\n');
  }
}

}  // namespace

void add_bench_ops(CLI::App& bench) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* command =
      bench.add_subcommand("ops",
                           "Measure the CPU ops at the shapes of the bench-cpu preset, as fractions of the "
                           "machine's bandwidth and arithmetic");
  command->add_option("--isa", flags->isa, "CPU kernels: avx512bf16, avx2, scalar (default: the best there is)")
      ->type_name("NAME");
  command->add_option("--threads", flags->threads, "CPU threads; 0: one per CPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command->add_option("--only", flags->only, "Only ops whose name begins like this")->type_name("NAME");
  command->add_flag("--json", flags->json, "One JSON object");
  command->callback([flags] { run_bench_ops(*flags); });
}

}  // namespace folio
