// What `folio calibrate` has found out about a model on a machine: how far the draft head's confidences can be trusted,
// and what steps cost. With a profile verification is dynamic (engine/verify_schedule.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/verify_schedule.h"

namespace folio {

// What a profile holds for: name -> value (engine/profile_identity.h).
using ProfileIdentity = std::map<std::string, std::string>;

struct CalibrationProfile {
  static constexpr int kVersion = 1;

  ProfileIdentity identity;
  int32_t draft_width = 0;   // tokens that are drafted at a time at most
  int32_t max_num_seqs = 0;  // most requests of a step that the tables know
  // steps_per_second [max_num_seqs * (draft_width + 1) + 1], draft_seconds [draft_width][max_num_seqs + 1]
  StepCosts costs;
  std::vector<double> temperatures;  // [draft_width]
};

// Every reason why the numbers of a profile cannot be right; nothing if they can.
std::optional<std::string> profile_refusal(const CalibrationProfile& profile);

// Every reason why a profile does not hold for what runs; nothing if it does. `origin` names it.
std::optional<std::string> identity_refusal(const CalibrationProfile& profile, const ProfileIdentity& running,
                                            const std::string& origin);
// What asks for the coverage, in messages.
struct CoverageNames {
  const char* num_speculative_tokens = "--num-speculative-tokens";
  const char* max_num_seqs = "--max-num-seqs";
};
std::optional<std::string> coverage_refusal(const CalibrationProfile& profile, int32_t num_speculative_tokens,
                                            int32_t max_num_seqs, const CoverageNames& names = {});

// The profile in a JSON document. Throws Error(kInvalidArgument) that names `origin` and every reason: no JSON, another
// version, a field that is missing, unknown or of the wrong kind, numbers that cannot be right. `evidence` is not read.
CalibrationProfile parse_profile(std::string_view json, const std::string& origin);
// The profile of a file. Throws Error(kNotFound, kInvalidArgument).
CalibrationProfile read_profile(const std::string& path);

// The document. `evidence` is a JSON object about how it was made, for people.
std::string profile_json(const CalibrationProfile& profile, const std::string& evidence);

}  // namespace folio
