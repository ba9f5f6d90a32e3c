#include "engine/model_runner.h"

#include "base/error.h"
#include "base/memory.h"

namespace folio {
namespace {

// Fills in what the model decides and checks the rest.
RunnerOptions resolved(RunnerOptions options, const Config& config) {
  options.max_model_len = context_length(config, options.max_model_len);
  std::string reasons;
  const auto refuse = [&](const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; };
  if (options.max_num_seqs < 1) refuse(concat("--max-num-seqs ", options.max_num_seqs, " must be at least 1"));
  if (options.max_rows < 1) refuse(concat("--max-num-batched-tokens ", options.max_rows, " must be at least 1"));
  if (!reasons.empty()) fail(ErrorCode::kInvalidArgument, reasons);
  return options;
}

std::string gib(int64_t bytes) {
  std::ostringstream out;
  out.precision(3);
  out << static_cast<double>(bytes) / (1 << 30) << " GiB";
  return out.str();
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
    : options_(resolved(options, files.checkpoint.config())),
      config_(files.checkpoint.config()),
      topology_(make_topology(config())),
      geometry_(geometry_inputs(config(), topology_, options.block_size, options.packed_cache)) {
  const auto pages_per_request = static_cast<int32_t>(geometry_.pages_for(options_.max_model_len));
  if (options_.pages == 0) options_.pages = options_.max_num_seqs * pages_per_request;
  const TransformerLimits limits{.max_rows = options_.max_rows,
                                 .max_head_rows = options_.max_head_rows,
                                 .max_model_len = options_.max_model_len,
                                 .trace = options_.trace};

  // Engram tables stay on disk: a step touches a few rows of them.
  const int64_t weights = files.checkpoint.total_bytes() - files.engram_table_bytes();
  const int64_t activations = workspace_bytes(config(), geometry_, limits);
  request_memory_ =
      options_.pages * geometry_.page_bytes() + options_.max_num_seqs * geometry_.state_bytes() + activations;
  const int64_t available = available_memory();
  const int64_t budget = options_.memory_budget > 0 ? options_.memory_budget : available / 10 * 9;
  if (weights + request_memory_ > budget) {
    fail(ErrorCode::kOutOfMemory, "does not fit in memory: weights ", gib(weights), " and cache and activations ",
         gib(request_memory_), " exceed the budget of ", gib(budget), " (", gib(available), " are free); lower ",
         "--max-model-len or --max-num-batched-tokens, raise --memory-budget, or use a machine with more memory");
  }

  device_ = make_cpu_device();
  ops_ = ops ? std::move(ops) : make_ops(options_);
  pages_ = std::make_unique<PagePool>(*device_, geometry_, options_.pages);
  states_ = std::make_unique<StatePool>(*device_, geometry_, options_.max_num_seqs);
  cache_ = CacheView(geometry_, *pages_, *states_);
  for (auto& builder : builders_) {
    builder = std::make_unique<StepBuilder>(*device_, StepLimits{.max_rows = options_.max_rows,
                                                                 .max_head_rows = options_.max_head_rows,
                                                                 .max_requests = options_.max_num_seqs,
                                                                 .max_pages = pages_per_request});
  }
  transformer_ =
      std::make_unique<Transformer>(*device_, *ops_, files.checkpoint, topology_, files.compressed, geometry_, limits);
}

StepOutputs ModelRunner::run(TraceSink* trace) { return transformer_->forward(builder().step(), cache_, trace); }

StepOutputs ModelRunner::run(const CopyPlan& copies, const Step& step) {
  run(copies);
  return transformer_->forward(step, cache_);
}

void ModelRunner::run(const CopyPlan& copies) { copies.run(*ops_); }

}  // namespace folio
