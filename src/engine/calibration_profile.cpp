#include "engine/calibration_profile.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"

namespace folio {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxProfileBytes = size_t{1} << 22;
constexpr int32_t kMaxSeqs = 1 << 16;
constexpr int32_t kMaxWidth = 64;

class Reasons {
 public:
  template <typename... Parts>
  void add(const Parts&... parts) {
    text_ += (text_.empty() ? "" : "; ") + concat(parts...);
  }
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }
  std::optional<std::string> result() const { return empty() ? std::nullopt : std::optional(text_); }

 private:
  std::string text_;
};

// `falls`: 1 for a table that may not rise, -1 for one that may not fall.
void check_table(const std::string& name, const std::vector<double>& table, int64_t size, int falls, Reasons& reasons) {
  if (std::ssize(table) != size) {
    return reasons.add(name, " has ", table.size(), " entries and needs ", size, ", one for each number from 0 to ",
                       size - 1);
  }
  for (size_t i = 0; i < table.size(); ++i) {
    if (!(std::isfinite(table[i]) && table[i] > 0)) {
      return reasons.add(name, "[", i, "] is ", table[i], " and must be positive and finite");
    }
    if (i > 0 && falls * (table[i] - table[i - 1]) > 0) {
      return reasons.add(name, "[", i, "] is ", table[i], " behind ", table[i - 1], ": it must not ",
                         falls > 0 ? "rise" : "fall");
    }
  }
}

void check_temperatures(const CalibrationProfile& profile, Reasons& reasons) {
  const std::vector<double>& temperatures = profile.temperatures;
  if (std::ssize(temperatures) != profile.draft_width) {
    reasons.add("sts_temperatures has ", temperatures.size(), " entries and needs ", profile.draft_width,
                ", one for each drafted token");
  }
  for (size_t i = 0; i < temperatures.size(); ++i) {
    if (!(std::isfinite(temperatures[i]) && temperatures[i] > 0)) {
      reasons.add("sts_temperatures[", i, "] is ", temperatures[i], " and must be positive and finite");
    }
  }
}

void check_rates(const CalibrationProfile& profile, Reasons& reasons) {
  const int64_t rows = int64_t{profile.max_num_seqs} * (profile.draft_width + 1);
  check_table("sps_table", profile.costs.steps_per_second, rows + 1, 1, reasons);
}

void check_draft_seconds(const CalibrationProfile& profile, Reasons& reasons) {
  const std::vector<std::vector<double>>& tables = profile.costs.draft_seconds;
  if (std::ssize(tables) != profile.draft_width) {
    return reasons.add("draft_seconds has ", tables.size(), " tables and needs ", profile.draft_width,
                       ", one for each width of a block");
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    check_table(concat("draft_seconds[", i, "]"), tables[i], int64_t{profile.max_num_seqs} + 1, -1, reasons);
  }
}

// Reads the fields of one object, each of which says whether it could be read, and notes what is wrong with them.
class Fields {
 public:
  Fields(const Json& object, Reasons& reasons) : object_(object), reasons_(reasons) {}

  bool integer(const char* name, int32_t most, int32_t& value) {
    const Json* field = find(name);
    if (field == nullptr) return false;
    const bool good = field->is_number_integer() && *field >= 1 && *field <= most;
    if (good) {
      value = field->get<int32_t>();
    } else {
      reasons_.add(name, " is ", field->dump(), " and must be a whole number from 1 to ", most);
    }
    return good;
  }
  bool numbers(const char* name, std::vector<double>& values) {
    const Json* field = find(name);
    if (field == nullptr) return false;
    const bool good = are_numbers(*field);
    if (good) {
      values = field->get<std::vector<double>>();
    } else {
      reasons_.add(name, " must be an array of numbers");
    }
    return good;
  }
  bool tables(const char* name, std::vector<std::vector<double>>& values) {
    const Json* field = find(name);
    if (field == nullptr) return false;
    const bool good = field->is_array() && std::ranges::all_of(*field, are_numbers);
    if (good) {
      values = field->get<std::vector<std::vector<double>>>();
    } else {
      reasons_.add(name, " must be an array of arrays of numbers, one for each width: run folio calibrate again");
    }
    return good;
  }
  void strings(const char* name, std::map<std::string, std::string>& values) {
    const Json* field = find(name);
    if (field == nullptr) return;
    const bool good = field->is_object() && std::ranges::all_of(*field, [](const Json& v) { return v.is_string(); });
    if (!good) return reasons_.add(name, " must be an object of strings");
    values = field->get<std::map<std::string, std::string>>();
  }
  void unknown(std::initializer_list<std::string_view> known) {
    for (const auto& [name, value] : object_.items()) {
      if (std::ranges::find(known, name) == known.end()) reasons_.add("there is no field `", name, "`");
    }
  }

 private:
  static bool are_numbers(const Json& field) {
    return field.is_array() && std::ranges::all_of(field, [](const Json& v) { return v.is_number(); });
  }
  const Json* find(const char* name) {
    const auto field = object_.find(name);
    if (field != object_.end()) return &*field;
    reasons_.add("`", name, "` is missing");
    return nullptr;
  }

  const Json& object_;
  Reasons& reasons_;
};

CalibrationProfile read_fields(const Json& document, Reasons& reasons) {
  CalibrationProfile profile;
  Fields fields(document, reasons);
  fields.strings("identity", profile.identity);
  const bool width = fields.integer("draft_width", kMaxWidth, profile.draft_width);
  const bool seqs = fields.integer("max_num_seqs", kMaxSeqs, profile.max_num_seqs);
  const bool rates = fields.numbers("sps_table", profile.costs.steps_per_second);
  const bool drafts = fields.tables("draft_seconds", profile.costs.draft_seconds);
  const bool temperatures = fields.numbers("sts_temperatures", profile.temperatures);
  fields.unknown({"version", "identity", "draft_width", "max_num_seqs", "sps_table", "draft_seconds",
                  "sts_temperatures", "evidence"});
  if (width && temperatures) check_temperatures(profile, reasons);
  if (width && seqs && rates) check_rates(profile, reasons);
  if (width && seqs && drafts) check_draft_seconds(profile, reasons);
  return profile;
}

}  // namespace

std::optional<std::string> profile_refusal(const CalibrationProfile& profile) {
  Reasons reasons;
  check_temperatures(profile, reasons);
  check_rates(profile, reasons);
  check_draft_seconds(profile, reasons);
  return reasons.result();
}

std::optional<std::string> identity_refusal(const CalibrationProfile& profile, const ProfileIdentity& running,
                                            const std::string& origin) {
  Reasons reasons;
  for (const auto& [name, value] : running) {
    const auto found = profile.identity.find(name);
    if (found == profile.identity.end()) {
      reasons.add("its identity has no ", name);
    } else if (found->second != value) {
      reasons.add("it was made for ", name, " ", found->second, ", and here it is ", value);
    }
  }
  for (const auto& [name, value] : profile.identity) {
    if (!running.contains(name)) reasons.add("its identity has ", name, ", which means nothing here");
  }
  if (reasons.empty()) return std::nullopt;
  return concat("--dspark-profile ", origin, " does not hold here: ", reasons.text(),
                ". Run folio calibrate with these flags on this machine");
}

std::optional<std::string> coverage_refusal(const CalibrationProfile& profile, int32_t num_speculative_tokens,
                                            int32_t max_num_seqs, const CoverageNames& names) {
  Reasons reasons;
  if (profile.draft_width != num_speculative_tokens) {
    reasons.add("--dspark-profile is for ", profile.draft_width, " drafted tokens and ", names.num_speculative_tokens,
                " is ", num_speculative_tokens, ": the two must be equal, else calibrate anew");
  }
  if (profile.max_num_seqs < max_num_seqs) {
    reasons.add("--dspark-profile covers ", profile.max_num_seqs, " requests at once and ", names.max_num_seqs, " is ",
                max_num_seqs, ": lower it or calibrate with more");
  }
  return reasons.result();
}

CalibrationProfile parse_profile(std::string_view json, const std::string& origin) {
  const Json document = Json::parse(json, nullptr, false);
  if (document.is_discarded()) fail(ErrorCode::kInvalidArgument, origin, ": no valid JSON");
  if (!document.is_object()) fail(ErrorCode::kInvalidArgument, origin, ": a profile is a JSON object");
  const auto version = document.find("version");
  if (version == document.end() || *version != CalibrationProfile::kVersion) {
    fail(ErrorCode::kInvalidArgument, origin, ": version ", version == document.end() ? "is missing" : version->dump(),
         ", and this build reads ", CalibrationProfile::kVersion, ": run folio calibrate again");
  }
  Reasons reasons;
  CalibrationProfile profile = read_fields(document, reasons);
  if (!reasons.empty()) fail(ErrorCode::kInvalidArgument, origin, ": ", reasons.text());
  return profile;
}

CalibrationProfile read_profile(const std::string& path) {
  return parse_profile(read_file(path, kMaxProfileBytes), path);
}

std::string profile_json(const CalibrationProfile& profile, const std::string& evidence) {
  const Json document = {{"version", CalibrationProfile::kVersion},     {"identity", profile.identity},
                         {"draft_width", profile.draft_width},          {"max_num_seqs", profile.max_num_seqs},
                         {"sps_table", profile.costs.steps_per_second}, {"draft_seconds", profile.costs.draft_seconds},
                         {"sts_temperatures", profile.temperatures},    {"evidence", Json::parse(evidence)}};
  return document.dump(1) + "\n";
}

}  // namespace folio
