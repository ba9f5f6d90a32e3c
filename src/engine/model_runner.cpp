#include "engine/model_runner.h"

#include "base/error.h"
#include "base/memory.h"

namespace folio {
namespace {

// Fills in what the model decides and checks the rest.
RunnerOptions resolved(RunnerOptions options, const Config& config, const Topology& topology) {
  options.max_model_len = context_length(config, options.max_model_len);
  std::string reasons;
  const auto refuse = [&](const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; };
  if (options.max_num_seqs < 1) refuse(concat("--max-num-seqs ", options.max_num_seqs, " must be at least 1"));
  if (options.max_rows < 1) refuse(concat("--max-num-batched-tokens ", options.max_rows, " must be at least 1"));
  if (options.num_speculative_tokens != 0) {
    if (const auto refusal = speculation_refusal(config, topology, options.num_speculative_tokens)) refuse(*refusal);
  }
  if (!reasons.empty()) fail(ErrorCode::kInvalidArgument, reasons);
  return options;
}

std::unique_ptr<Ops> make_ops(const RunnerOptions& options) {
  if (options.isa == "ref") return make_reference_ops();
  return make_cpu_ops({.isa = options.isa, .threads = options.threads});
}

}  // namespace

int64_t context_length(const Config& config, int64_t requested) {
  if (requested < 0 || requested > config.max_position_embeddings) {
    fail(ErrorCode::kInvalidArgument, "--max-model-len ", requested, " must be from 1 to the model's ",
         config.max_position_embeddings);
  }
  return requested == 0 ? config.max_position_embeddings : requested;
}

ModelRunner::ModelRunner(const ModelFiles& files, const RunnerOptions& options, std::unique_ptr<Ops> ops)
    : options_(resolved(options, files.checkpoint.config(), make_topology(files.checkpoint.config()))),
      config_(files.checkpoint.config()),
      topology_(make_topology(config())),
      geometry_(geometry_inputs(config(), topology_, options.block_size, options.cache_format,
                                options.num_speculative_tokens)) {
  const TransformerLimits limits{.max_rows = options_.max_rows,
                                 .max_head_rows = options_.max_head_rows,
                                 .max_model_len = options_.max_model_len,
                                 .max_drafting = options_.num_speculative_tokens > 0 ? options_.max_num_seqs : 0,
                                 .draft_width = options_.num_speculative_tokens,
                                 .trace = options_.trace};

  const int64_t available = available_memory();
  const Capacity needs{.budget = options_.memory_budget > 0 ? options_.memory_budget : available / 10 * 9,
                       .weights = files.checkpoint.total_bytes() - files.engram_table_bytes(),
                       .activations = workspace_bytes(config(), geometry_, limits),
                       .state_bytes = geometry_.state_bytes(),
                       .page_bytes = geometry_.page_bytes(),
                       .block_size = options_.block_size,
                       .max_model_len = options_.max_model_len,
                       .slots = options_.max_num_seqs,
                       .pages = 0};
  capacity_ = plan_pages(needs, options_.pages, int64_t{options_.max_num_seqs} + options_.cached_requests, available);
  options_.pages = capacity_.pages;

  device_ = make_cpu_device();
  ops_ = ops ? std::move(ops) : make_ops(options_);
  pages_ = std::make_unique<PagePool>(*device_, geometry_, options_.pages);
  states_ = std::make_unique<StatePool>(*device_, geometry_, options_.max_num_seqs);
  cache_ = CacheView(geometry_, *pages_, *states_);
  for (auto& builder : builders_) {
    builder = std::make_unique<StepBuilder>(
        *device_, StepLimits{.max_rows = options_.max_rows,
                             .max_head_rows = options_.max_head_rows,
                             .max_requests = options_.max_num_seqs,
                             .max_pages = static_cast<int32_t>(geometry_.pages_for(options_.max_model_len)),
                             .vocab = config_.vocab_size,
                             .draft_width = options_.num_speculative_tokens});
  }
  transformer_ =
      std::make_unique<Transformer>(*device_, *ops_, files.checkpoint, topology_, files.compressed, geometry_, limits);
}

StepOutputs ModelRunner::run(TraceSink* trace) { return transformer_->forward(builder().step(), cache_, trace); }

StepOutputs ModelRunner::run(const CopyPlan& copies, const Step& step, TraceSink* trace) {
  run(copies);
  return transformer_->forward(step, cache_, trace);
}

DraftOutputs ModelRunner::draft(const Step& step, TraceSink* trace) { return transformer_->draft(step, cache_, trace); }

void ModelRunner::run(const CopyPlan& copies) { copies.run(*ops_); }

}  // namespace folio
