#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "numerics/fp4.h"
#include "ops/cpu/resident.h"

namespace folio {

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) { return std::make_unique<cpu::CpuOps>(options); }

namespace cpu {
namespace {

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return scalar_kernels();
    case Isa::kAvx2:
      return avx2_kernels();
    case Isa::kAvx512Bf16:
      return avx512bf16_kernels();
  }
  return scalar_kernels();
}

// A scale that the kernels can fold into its block.
bool foldable(uint8_t scale) { return scale >= kMinScale && scale <= kMaxScale; }

// Checkpoints give blocks of zeros any scale; those do not count, except NaN.
bool zero_fp8_block(const Matrix& m, int64_t block_row, int64_t block) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.weights);
  for (int64_t o = block_row * 32; o < std::min(m.out, block_row * 32 + 32); ++o) {
    for (int64_t i = block * 32; i < std::min(m.in, block * 32 + 32); ++i) {
      if ((codes[o * m.in + i] & 0x7f) != 0) return false;
    }
  }
  return true;
}
bool zero_fp4_block(const Matrix& m, int64_t row, int64_t block) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.weights) + row * m.in / 2 + block * 16;
  return std::all_of(codes, codes + 16, [](uint8_t pair) { return (pair & 0x77) == 0; });
}

bool needs_exact(const Matrix& m) {
  if (m.in % 32 != 0) return true;
  const int64_t rows = m.format == Format::kFp8 ? (m.out + 31) / 32 : m.out;
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* scales = m.scales + row * m.scale_stride;
    // The common case without a branch per scale.
    bool good = true;
    for (int64_t b = 0; b < m.in / 32; ++b) good &= foldable(scales[b]);
    if (good) continue;
    for (int64_t b = 0; b < m.in / 32; ++b) {
      if (foldable(scales[b])) continue;
      const bool zero = m.format == Format::kFp8 ? zero_fp8_block(m, row, b) : zero_fp4_block(m, row, b);
      if (!zero || scales[b] == 255) return true;
    }
  }
  return false;
}

Matrix fp4_matrix(const HostFp4& projection, int64_t out, int64_t in) {
  Matrix m{Format::kFp4, reinterpret_cast<const std::byte*>(projection.codes), projection.scales, in / 32, in, out};
  m.exact = needs_exact(m);
  return m;
}

Matrix matrix_from(const HostWeight& weight) {
  Matrix m{.in = weight.in(), .out = weight.out()};
  if (weight.kind() == WeightKind::kBf16) {
    m.format = Format::kBf16;
    m.weights = reinterpret_cast<const std::byte*>(weight.values);
  } else if (weight.kind() == WeightKind::kFp8) {
    m.format = Format::kFp8;
    m.weights = reinterpret_cast<const std::byte*>(weight.codes);
    m.scales = weight.scales;
    m.scale_stride = weight.scale_stride;
    m.exact = needs_exact(m);
  }
  return m;
}

void map_views(const WeightViews& views) {
  map_resident(views.weight.data, views.weight.bytes());
  if (views.scale.data != nullptr) map_resident(views.scale.data, views.scale.bytes());
}

}  // namespace

CpuWeight::CpuWeight(HostWeight&& weight) : HostWeight(std::move(weight)), matrix(matrix_from(*this)) {}

CpuExperts::CpuExperts(HostExperts&& experts) : HostExperts(std::move(experts)) {
  const int64_t inner = out(), hidden = in();
  for (const HostExpert& expert : routed) {
    matrices.push_back({fp4_matrix(expert.w1, inner, hidden), fp4_matrix(expert.w3, inner, hidden),
                        fp4_matrix(expert.w2, hidden, inner)});
  }
  matrices.push_back(
      {matrix_from(host(shared_w1.get())), matrix_from(host(shared_w3.get())), matrix_from(host(shared_w2.get()))});
}

const Matrix& matrix_of(const Weight* weight) {
  host(weight);  // checks the kind
  const Matrix& matrix = static_cast<const CpuWeight*>(weight)->matrix;
  FOLIO_CHECK(matrix.weights != nullptr);
  return matrix;
}

const std::byte* matrix_row(const Matrix& matrix, int64_t row) {
  switch (matrix.format) {
    case Format::kBf16:
      return matrix.weights + row * matrix.in * 2;
    case Format::kFp8:
      return matrix.weights + row * matrix.in;
    case Format::kFp4:
      return matrix.weights + row * matrix.in / 2;
  }
  return matrix.weights;
}

const CpuExperts& experts_of(const Weight* weight) {
  host_experts(weight);  // checks the kind
  return static_cast<const CpuExperts&>(*weight);
}

CpuOps::CpuOps(const CpuOptions& options)
    : isa_(choose_isa(options.isa)), kernels_(kernels_of(isa_)), pool_(options.threads), device_(make_cpu_device()) {}

std::string CpuOps::name() const { return std::string("cpu/") + isa_name(isa_); }

WeightHandle CpuOps::prepare(WeightKind kind, const WeightViews& views) {
  // Engram tables are read a row here and there, and may be larger than the memory.
  if (kind != WeightKind::kFp8Rows) map_views(views);
  return std::make_unique<CpuWeight>(std::move(*make_host_weight(kind, views)));
}

WeightHandle CpuOps::prepare_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared) {
  for (const ExpertViews& expert : routed) {
    for (const WeightViews* views : {&expert.w1, &expert.w3, &expert.w2}) map_views(*views);
  }
  for (const WeightViews* views : {&shared.w1, &shared.w3, &shared.w2}) map_views(*views);
  return std::make_unique<CpuExperts>(std::move(*make_host_experts(routed, shared)));
}

void CpuOps::reserve(const OpsLimits& limits) {
  ReferenceOps::reserve(limits);
  limits_ = limits;
  Arena measure;
  layout(measure);
  memory_ = Buffer(*device_, measure.used());
  Arena arena(memory_);
  layout(arena);
}

// Enough for the list of a row, in two parts of a power of two each.
int64_t CpuOps::row_cache_rows() const {
  return 2 * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(limits_.list_length, 1))));
}

void CpuOps::layout(Arena& arena) {
  const OpsLimits& l = limits_;
  Scratch& s = scratch_;
  const int64_t linear_rows = std::min(l.max_rows, kLinearRows);
  const int64_t expert_rows = std::min(l.max_rows, kExpertRows);
  // A grouped linear pads each of its groups.
  const int64_t widest = std::max({l.max_linear_in, l.hidden, l.heads * (l.head_dim + kPackColumns)});
  const int64_t pairs = expert_rows * (l.max_topk_experts + 1);
  s.packed_bytes = std::max(linear_rows * packed_stride(widest), expert_rows * packed_stride(l.hidden));
  s.packed = arena.take<std::byte>(s.packed_bytes);
  s.packed_shared = arena.take<std::byte>(expert_rows * packed_stride(l.hidden));
  s.activations = arena.take<std::byte>(pairs * packed_stride(l.expert_inner));
  s.pair_row = arena.take<int32_t>(pairs);
  s.pair_weight = arena.take<float>(pairs);
  s.expert_begin = arena.take<int32_t>(l.max_experts + 2);
  s.work = arena.take<ExpertWork>(l.max_experts + 1 + pairs / kTileRows);
  const int64_t row_bytes = l.head_dim * kernels_.operand_bytes;
  const int64_t chunks = (l.list_length + kAttendChunk - 1) / kAttendChunk + 1;
  s.list_memory = arena.take<std::byte>(chunks * kAttendChunk * row_bytes);
  s.list_rows = arena.take<const void*>(chunks * (kAttendChunk + 1));
  s.list_counts = arena.take<int32_t>(chunks);
  s.router = arena.take<float>(linear_rows * l.max_experts);
  s.sample_sums = arena.take<PartSum>(kSampleRows * sample_parts(l.vocab));
  s.markov = arena.take<bf16>(l.max_drafting * l.markov_rank);
  s.joined = arena.take<bf16>(l.max_drafting * (l.hidden + l.markov_rank));
  s.markov_bias = arena.take<float>(l.max_drafting * l.vocab);
  s.confidence = arena.take<float>(l.max_drafting);
  s.threads.resize(static_cast<size_t>(pool_.threads()));
  const int64_t widest_in = std::max({l.max_linear_in, l.hidden, l.expert_inner, int64_t{l.heads} * l.head_dim});
  for (ThreadScratch& t : s.threads) {
    t.gemm = arena.take<std::byte>(kernels_.gemm_scratch_bytes(widest_in));
    t.exact = arena.take<float>(2 * widest_in);
    t.sums = arena.take<float>(std::max(expert_rows * kDownTile, kTileRows * kUpTile));
    t.gate = arena.take<uint16_t>(kTileRows * kUpTile);
    t.up = arena.take<uint16_t>(kTileRows * kUpTile);
    t.attend = arena.take<std::byte>(kernels_.attend_scratch_bytes(l.heads, l.head_dim));
    t.cached_rows = arena.take<std::byte>(row_cache_rows() * row_bytes);
    t.spare_rows = arena.take<std::byte>(kAttendChunk * row_bytes);
    t.tags = arena.take<RowTag>(row_cache_rows());
    t.stamps = arena.take<uint64_t>(row_cache_rows());
    t.index_query = arena.take<std::byte>(std::max(kernels_.index_fp4.query_bytes(l.index_heads, l.index_dim),
                                                   kernels_.index_fp8.query_bytes(l.index_heads, l.index_dim)));
    t.affinity = arena.take<float>(l.max_experts);
    t.scores = arena.take<std::byte>(l.max_visible * index_score_bytes(l.index_format));
    t.block_scores = arena.take<std::byte>(l.max_visible * index_score_bytes(l.index_format));
    t.sample = {.adjusted = arena.take<float>(l.vocab),
                .weights = arena.take<float>(l.vocab),
                .candidates = arena.take<SampleCandidate>(l.vocab),
                .sums = arena.take<double>(SampleScratch::blocks(l.vocab))};
  }
}

}  // namespace cpu
}  // namespace folio
