// The scalar truth (docs/fidelity.md): every op as plain loops over one row at a time. Sums are taken in double and
// rounded once to fp32, elementary functions likewise; other arithmetic is fp32 with the roundings of the published
// model. Host backends derive from it and override what they do faster.
#pragma once

#include "ops/ops.h"
#include "ops/ref/sample_row.h"

namespace folio {

class ReferenceOps : public Ops {
 public:
  std::string name() const override { return "ref"; }
  void reserve(const OpsLimits& limits) override;

  WeightHandle prepare(WeightKind kind, const WeightViews& views) override;
  WeightHandle prepare_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared) override;

  void copy_ranges(const CopyRangesArgs& args) override;
  void begin_step(const BeginStepArgs& args) override;
  void embed(const EmbedArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void quantized_linear(const LinearArgs& args) override;
  void linear(const LinearArgs& args) override;
  void grouped_linear(const GroupedLinearArgs& args) override;
  void rotate(const RotateArgs& args) override;
  void scale(const ScaleArgs& args) override;
  void hyper_mix(const HyperMixArgs& args) override;
  void hyper_collapse(const HyperCollapseArgs& args) override;
  void hyper_expand(const HyperExpandArgs& args) override;
  void stream_means(const StreamMeansArgs& args) override;
  void engram_gather(const EngramGatherArgs& args) override;
  void engram_inject(const EngramInjectArgs& args) override;
  void compress(const CompressArgs& args) override;
  void write_main(const WritePagedArgs& args) override;
  void write_index(const WritePagedArgs& args) override;
  void encode_window(const EncodeWindowArgs& args) override;
  void write_window(const WriteWindowArgs& args) override;
  void index_select(const IndexSelectArgs& args) override;
  void attend(const AttendArgs& args) override;
  void route(const RouteArgs& args) override;
  void experts(const ExpertsArgs& args) override;
  void sample(const SampleArgs& args) override;
  void verify(const VerifyArgs& args) override;
  void commit(const CommitArgs& args) override;
  void begin_draft(const BeginDraftArgs& args) override;
  void draft_heads(const DraftHeadsArgs& args) override;

 private:
  std::vector<float> adjusted_, weights_;
  std::vector<SampleCandidate> candidates_;
  std::vector<double> sums_;
  SampleScratch sample_scratch_;  // the four above
};

}  // namespace folio
