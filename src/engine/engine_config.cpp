#include "engine/engine_config.h"

#include "base/error.h"
#include "cache/state_transfer.h"
#include "engine/calibration_profile.h"

namespace folio {
namespace {

template <typename Refuse>
void check_profile(const EngineConfig& config, const Refuse& refuse) {
  if (config.num_speculative_tokens == 0) return refuse("--dspark-profile needs --speculative dspark");
  if (config.forced_acceptance_length != 0) {
    refuse(
        "--dspark-profile chooses what to verify by what is accepted, which forced acceptance decides: leave one out");
  }
  if (const auto refusal = profile_refusal(*config.profile)) refuse("--dspark-profile: " + *refusal);
  const auto refusal = coverage_refusal(*config.profile, config.num_speculative_tokens, config.max_num_seqs);
  if (refusal) refuse(*refusal);
}

}  // namespace

EngineConfig resolve(EngineConfig config, const Config& model, const Topology& topology, const Geometry& geometry) {
  std::string reasons;
  const auto refuse = [&](const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; };
  if (config.decoder_replay && decoder_replay_refusal(model, topology)) config.decoder_replay = false;
  if (!config.prefix_cache) config.encoder_replay = false;
  if (config.encoder_replay) {
    if (const auto refusal = replay_refusal(geometry)) refuse(*refusal);
  }
  if (config.max_num_seqs < 1) refuse(concat("--max-num-seqs ", config.max_num_seqs, " must be at least 1"));
  if (config.max_num_batched_tokens <= config.max_num_seqs) {
    refuse(concat("--max-num-batched-tokens ", config.max_num_batched_tokens, " must be more than --max-num-seqs ",
                  config.max_num_seqs));
  }
  if (config.long_prefill_token_threshold < 0) {
    refuse(concat("--long-prefill-token-threshold ", config.long_prefill_token_threshold, " must be 0 or more"));
  }
  if (config.state_checkpoint_interval < 0) {
    refuse(concat("--state-checkpoint-interval-tokens ", config.state_checkpoint_interval, " must be 0 or more"));
  }
  if (config.num_speculative_tokens != 0) {
    if (const auto refusal = speculation_refusal(model, topology, config.num_speculative_tokens)) refuse(*refusal);
  }
  if (config.forced_acceptance_length != 0) {
    const auto refusal = forced_refusal(config.forced_acceptance_length, config.num_speculative_tokens);
    if (refusal) refuse(*refusal);
  }
  if (config.profile != nullptr) check_profile(config, refuse);
  if (config.acceptance == Acceptance::kRatio) {
    if (config.num_speculative_tokens == 0) refuse("--spec-acceptance ratio needs --speculative dspark");
    if (config.forced_acceptance_length != 0) {
      refuse("--spec-acceptance ratio has no meaning when acceptance is forced: leave one out");
    }
    if (config.profile != nullptr) {
      // Whether a draft is verified would depend on what it is, which would favour some tokens.
      refuse("--spec-acceptance ratio verifies blocks of a fixed width: leave out --dspark-profile");
    }
  }
  if (config.depth != 1 && config.depth != 2) refuse(concat("depth ", config.depth, " must be 1 or 2"));
  if (!reasons.empty()) fail(ErrorCode::kInvalidArgument, reasons);
  return config;
}

}  // namespace folio
