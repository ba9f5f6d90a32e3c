// How the engine schedules. Flags of docs/architecture.md.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/geometry.h"
#include "engine/speculation.h"
#include "model/topology.h"

namespace folio {

struct CalibrationProfile;

struct EngineConfig {
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 2048;     // rows of a step
  int32_t long_prefill_token_threshold = 0;  // most rows of one prefill in a step; 0 = no limit
  bool mix_prefill_and_decode = true;        // both may share a step
  int32_t depth = 1;                         // steps in flight: 1 or 2
  bool prefix_cache = true;
  bool decoder_replay = true;                // --[no-]decoder-swa-bounded-replay
  bool encoder_replay = true;                // --[no-]encoder-swa-bounded-replay; off: state images
  int64_t state_checkpoint_interval = 8192;  // tokens between images
  int32_t num_speculative_tokens = 0;        // drafts of a decode step; 0: no speculation
  Acceptance acceptance = Acceptance::kMatch;
  double forced_acceptance_length = 0;  // for measurements: mean tokens of a verification; 0: not forced
  // Verification is dynamic; null: all drafts are verified.
  std::shared_ptr<const CalibrationProfile> profile = nullptr;
  bool poison = false;  // for tests: pages and slots hold NaN patterns at first and from when they are free again
};

// The configuration as it acts: decoder replay is off where the model has no use for it, encoder replay without a
// prefix cache. Throws Error(kInvalidArgument) with every reason why it cannot work for such a model and layout.
EngineConfig resolve(EngineConfig config, const Config& model, const Topology& topology, const Geometry& geometry);

}  // namespace folio
