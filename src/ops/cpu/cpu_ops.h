// The CPU backend: what pays is vectorised and spread over threads, the rest is inherited from the reference. Files
// cpu_*.cpp hold the ops by family: they cut the work into tiles, the kernels of one ISA (kernels.h) do a tile.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"
#include "ops/ops.h"
#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/sample_row.h"
#include "tensor/arena.h"
#include "tensor/buffer.h"

namespace folio::cpu {

constexpr int64_t kSerialElements = 16384;  // less work than this is not worth waking a thread for

// A matrix as the kernels take it.
struct Matrix {
  Format format = Format::kBf16;
  const std::byte* weights = nullptr;
  const uint8_t* scales = nullptr;
  int64_t scale_stride = 0;
  int64_t in = 0;
  int64_t out = 0;
  bool exact = false;  // something that the kernels cannot do (prepare): exact_product instead
};

struct CpuWeight : HostWeight {
  explicit CpuWeight(HostWeight&& weight);
  Matrix matrix;  // kBf16, kFp8
};

struct CpuExperts : HostExperts {
  explicit CpuExperts(HostExperts&& experts);
  struct Projections {
    Matrix w1, w3, w2;
  };
  std::vector<Projections> matrices;  // of the routed experts, then of the shared one
};

const Matrix& matrix_of(const Weight* weight);
// Where row `row` of a matrix begins.
const std::byte* matrix_row(const Matrix& matrix, int64_t row);
const CpuExperts& experts_of(const Weight* weight);

// Packed rows that meet a matrix.
struct PackedRows {
  const std::byte* data = nullptr;
  int64_t stride = 0;              // bytes
  const int32_t* index = nullptr;  // row r is packed row index[r]; null = r
  int64_t rows = 0;
};

// Where a tile of outputs goes; exactly one of the two, at (row 0, first output of the tile).
struct TileOutput {
  float* f32 = nullptr;
  uint16_t* bits = nullptr;
  int64_t stride = 0;  // elements
};

inline const uint16_t* bits_of(const bf16* x) { return reinterpret_cast<const uint16_t*>(x); }
inline uint16_t* bits_of(bf16* x) { return reinterpret_cast<uint16_t*>(x); }

struct Competitors;  // cpu_index.cpp
// Of a score in scratch: bf16 or fp32 bits.
constexpr int64_t index_score_bytes(RowFormat keys) { return keys == RowFormat::kFp8Index ? 4 : 2; }

class CpuOps final : public ReferenceOps {
 public:
  explicit CpuOps(const CpuOptions& options);

  std::string name() const override;
  void reserve(const OpsLimits& limits) override;
  WeightHandle prepare(WeightKind kind, const WeightViews& views) override;
  WeightHandle prepare_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared) override;

  void rms_norm(const RmsNormArgs& args) override;
  void quantized_linear(const LinearArgs& args) override;
  void linear(const LinearArgs& args) override;
  void grouped_linear(const GroupedLinearArgs& args) override;
  void experts(const ExpertsArgs& args) override;
  void attend(const AttendArgs& args) override;
  void index_select(const IndexSelectArgs& args) override;
  void hyper_mix(const HyperMixArgs& args) override;
  void hyper_collapse(const HyperCollapseArgs& args) override;
  void hyper_expand(const HyperExpandArgs& args) override;
  void stream_means(const StreamMeansArgs& args) override;
  void rotate(const RotateArgs& args) override;
  void engram_gather(const EngramGatherArgs& args) override;
  void engram_inject(const EngramInjectArgs& args) override;
  void route(const RouteArgs& args) override;
  void encode_window(const EncodeWindowArgs& args) override;
  void write_main(const WritePagedArgs& args) override;
  void write_index(const WritePagedArgs& args) override;
  void compress(const CompressArgs& args) override;
  void sample(const SampleArgs& args) override;
  void draft_heads(const DraftHeadsArgs& args) override;

 private:
  static constexpr int64_t kLinearRows = 512;       // rows that are packed at a time: they stay in the L3 cache
  static constexpr int64_t kExpertRows = 2048;      // rows of one pass over the experts
  static constexpr int64_t kTileRows = 256;         // rows of an expert that a tile takes at a time
  static constexpr int64_t kUpTile = kPackColumns;  // outputs of w1 and w3, which a tile packs for w2
  static constexpr int64_t kDownTile = 64;          // outputs of w2, more where there are few rows
  static constexpr int64_t kFewRows = 8;
  static constexpr int64_t kSampleRows = 64;    // rows of one pass of sample
  static constexpr int64_t kSamplePart = 4096;  // ids whose exponentials are summed in fp32: they stay in the L1 cache
  static int64_t sample_parts(int64_t vocab) { return (vocab + kSamplePart - 1) / kSamplePart; }

  // What a place of a thread's cache of widened attention rows holds.
  struct RowTag {
    uint64_t epoch;  // call of attend; 0 = nothing
    int32_t request;
    int32_t index;
    bool operator==(const RowTag&) const = default;
  };
  struct ThreadScratch {
    std::byte* gemm = nullptr;         // of the kernels
    float* exact = nullptr;            // a row of activations and one of weights, for exact_product
    float* sums = nullptr;             // experts: [kExpertRows, kDownTile]
    uint16_t* gate = nullptr;          // experts: [kTileRows, kUpTile], also outputs of w2
    uint16_t* up = nullptr;            // experts: [kTileRows, kUpTile]
    std::byte* attend = nullptr;       // of the kernels
    std::byte* cached_rows = nullptr;  // attention: [row_cache_rows(), head_dim]
    std::byte* spare_rows = nullptr;   // attention: [kAttendChunk, head_dim]
    RowTag* tags = nullptr;            // of cached_rows
    uint64_t* stamps = nullptr;        // of cached_rows: the chunk that used them last
    uint64_t cache_epoch = 0;
    uint64_t chunk_stamp = 0;
    std::byte* index_query = nullptr;
    float* affinity = nullptr;          // router: [max_experts]
    std::byte* scores = nullptr;        // index: [max_visible] scores of index_format
    std::byte* block_scores = nullptr;  // index: likewise
    SampleScratch sample;
  };
  // Rows of one expert that one tile takes.
  struct ExpertWork {
    int32_t expert;
    int32_t first_pair;
    int32_t pairs;
  };
  struct Scratch {
    std::byte* packed = nullptr;  // inputs of a linear; of the routed experts
    int64_t packed_bytes = 0;
    std::byte* packed_shared = nullptr;  // inputs of the shared expert
    std::byte* activations = nullptr;    // inputs of w2, by pair
    int32_t* pair_row = nullptr;         // pairs (row, expert) by expert, rows ascending; the shared expert's last
    float* pair_weight = nullptr;
    int32_t* expert_begin = nullptr;  // first pair of each expert
    ExpertWork* work = nullptr;
    std::byte* list_memory = nullptr;  // one row's attention list, widened
    const void** list_rows = nullptr;  // [chunks, kAttendChunk + 1]
    int32_t* list_counts = nullptr;    // [chunks]
    float* router = nullptr;           // [kLinearRows, max_experts]
    PartSum* sample_sums = nullptr;    // [kSampleRows, sample_parts]
    bf16* markov = nullptr;            // draft heads: [max_drafting, markov_rank]
    bf16* joined = nullptr;            // draft heads: [max_drafting, hidden + markov_rank]
    float* markov_bias = nullptr;      // draft heads: [max_drafting, vocab]
    float* confidence = nullptr;       // draft heads: [max_drafting]
    std::vector<ThreadScratch> threads;
  };

  void layout(Arena& arena);
  void matrix_product(const LinearArgs& args, bool quantize);
  void pack_rows(const PackArgs& first, int64_t x_stride, int64_t out_stride, int64_t rows);
  // `next`: the weights that the thread reads after this tile, if they do not lie behind it.
  void tile(const Matrix& matrix, int64_t first, int64_t count, const PackedRows& x, const TileOutput& out,
            const ThreadScratch& scratch, const std::byte* next = nullptr) const;
  void exact_product(const Matrix& matrix, int64_t first, int64_t count, const PackedRows& x, const TileOutput& out,
                     float* scratch) const;
  int64_t packed_stride(int64_t in) const { return packed_columns(in) * kernels_.operand_bytes; }

  void expert_block(const ExpertsArgs& args, int64_t row0, int64_t rows);
  int64_t group_by_expert(const ExpertsArgs& args, int64_t row0, int64_t rows, int64_t num_experts);
  void expert_up(const CpuExperts& all, float limit, const ExpertWork& work, int64_t first,
                 const ThreadScratch& scratch, const std::byte* next) const;
  void expert_down(const CpuExperts& all, bf16* out, int64_t rows, int64_t first, int64_t width,
                   const ThreadScratch& scratch) const;

  void finish_mix(const HyperMixArgs& args, int64_t row, const float* m) const;
  void route_row(const RouteArgs& args, int64_t row, const float* z, float* affinity) const;
  void write_rows(const WritePagedArgs& args, RowFormat packed);
  int32_t largest(const float* logits, int64_t vocab) const;
  static LogSum softmax_of(const float* logits, int64_t vocab, const PartSum* parts);
  void sample_row(const SampleArgs& args, int64_t row, const PartSum* parts, const SampleScratch& scratch) const;

  int64_t row_cache_rows() const;
  const void* widen_row(const AttendArgs& args, bool in_window, RowAddress row, void* out) const;
  AttendArgsOfRow attend_row_args(const AttendArgs& args, int64_t query, int64_t head, int64_t heads,
                                  std::byte* scratch) const;
  void attend_row(const AttendArgs& args, int32_t query, int64_t head, int64_t heads, ThreadScratch& scratch) const;
  void attend_rows(const AttendArgs& args, int64_t groups);
  void attend_together(const AttendArgs& args, int32_t query);

  void score_keys(const IndexSelectArgs& args, int32_t row, const std::byte* query, const Competitors& competitors,
                  int64_t begin, int64_t end, std::byte* out) const;
  void trace_scores(const IndexSelectArgs& args, int32_t row, const ThreadScratch& scratch) const;
  bool select_all(const IndexSelectArgs& args, int32_t row) const;
  void select_scored(const IndexSelectArgs& args, int32_t row, const ThreadScratch& scratch) const;

  Isa isa_;
  const Kernels& kernels_;
  ThreadPool pool_;
  OpsLimits limits_;
  std::unique_ptr<Device> device_;
  Buffer memory_;
  Scratch scratch_;
  uint64_t attend_epoch_ = 0;
};

}  // namespace folio::cpu
