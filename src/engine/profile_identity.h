// What a calibration profile holds for: a checkpoint, a machine and how it is used.
#pragma once

#include <string>

#include "engine/calibration_profile.h"
#include "engine/model_runner.h"
#include "model/model_files.h"

namespace folio {

// The identity of a runner with these options: hashes of config.json and of the index of the tensors (they tell
// checkpoints apart, not weights), model type, processor, instruction set, threads and the formats of the cache.
// `version` is the program's. Reads no weight.
ProfileIdentity profile_identity(const ModelFiles& files, const RunnerOptions& options, const std::string& version);

}  // namespace folio
