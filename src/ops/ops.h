// The one seam between the model's arithmetic and the hardware: ops in the model's own vocabulary. An op reads and
// writes device memory, enqueues on the device's stream, allocates nothing, and computes each row from that row's
// inputs alone (docs/architecture.md, "The row law").
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/attention.h"
#include "ops/compress.h"
#include "ops/copy.h"
#include "ops/draft.h"
#include "ops/engram.h"
#include "ops/hyper.h"
#include "ops/index_select.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/sample.h"
#include "ops/step.h"
#include "ops/weights.h"

namespace folio {

// The largest problem that a backend must be ready for; its scratch is sized from this once.
struct OpsLimits {
  int64_t max_rows = 0;       // of a step
  int64_t max_linear_in = 0;  // widest input of any linear
  int64_t hidden = 0;
  int64_t expert_inner = 0;
  int32_t max_experts = 0;
  int32_t max_topk_experts = 0;
  int32_t heads = 0;  // attention heads
  int32_t head_dim = 0;
  int32_t list_length = 0;  // window + index_topk, or window + draft block
  int32_t index_heads = 0;
  int32_t index_dim = 0;
  RowFormat index_format = RowFormat::kFp4Index;  // kFp8Index where some plane is
  int64_t max_visible = 0;                        // compressed entries of one request
  int64_t vocab = 0;
  int64_t max_drafting = 0;  // requests that draft together
  int64_t markov_rank = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // "ref", "cpu/avx512bf16"; the name of what decides the order of sums.
  virtual std::string name() const = 0;

  // Sizes scratch; called once before the first step.
  virtual void reserve(const OpsLimits& limits) = 0;

  // Makes a weight of `kind` from its published tensors. Throws Error(kInvalidCheckpoint) on values that no arithmetic
  // is defined for.
  virtual WeightHandle prepare(WeightKind kind, const WeightViews& views) = 0;
  virtual WeightHandle prepare_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared) = 0;

  virtual void copy_ranges(const CopyRangesArgs& args) = 0;
  virtual void begin_step(const BeginStepArgs& args) = 0;
  virtual void embed(const EmbedArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void quantized_linear(const LinearArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  virtual void grouped_linear(const GroupedLinearArgs& args) = 0;
  virtual void rotate(const RotateArgs& args) = 0;
  virtual void scale(const ScaleArgs& args) = 0;
  virtual void hyper_mix(const HyperMixArgs& args) = 0;
  virtual void hyper_collapse(const HyperCollapseArgs& args) = 0;
  virtual void hyper_expand(const HyperExpandArgs& args) = 0;
  virtual void stream_means(const StreamMeansArgs& args) = 0;
  virtual void engram_gather(const EngramGatherArgs& args) = 0;
  virtual void engram_inject(const EngramInjectArgs& args) = 0;
  virtual void compress(const CompressArgs& args) = 0;
  virtual void write_main(const WritePagedArgs& args) = 0;
  virtual void write_index(const WritePagedArgs& args) = 0;
  virtual void encode_window(const EncodeWindowArgs& args) = 0;
  virtual void write_window(const WriteWindowArgs& args) = 0;
  virtual void index_select(const IndexSelectArgs& args) = 0;
  virtual void attend(const AttendArgs& args) = 0;
  virtual void route(const RouteArgs& args) = 0;
  virtual void experts(const ExpertsArgs& args) = 0;
  virtual void sample(const SampleArgs& args) = 0;
  virtual void verify(const VerifyArgs& args) = 0;
  virtual void commit(const CommitArgs& args) = 0;
  virtual void begin_draft(const BeginDraftArgs& args) = 0;
  virtual void draft_heads(const DraftHeadsArgs& args) = 0;
};

// The scalar truth: every op written for reading, sums in double rounded once to fp32. Single-threaded.
std::unique_ptr<Ops> make_reference_ops();

struct CpuOptions {
  std::string isa;  // "scalar", "avx2", "avx512bf16"; empty = the best that the processor has
  int threads = 0;  // 0 = all processors that the process may run on
};

// The vectorised, threaded CPU backend. Throws Error(kUnsupported) for an ISA that the processor lacks and
// Error(kInvalidArgument) for an unknown one.
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

}  // namespace folio
