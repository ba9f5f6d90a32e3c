#include "golden_case.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace folio::golden {

std::vector<GoldenCase> load_cases(const std::string& folder, bool quick) {
  std::ifstream file(folder + "/cases.json");
  if (!file) fail(ErrorCode::kNotFound, folder, "/cases.json: run the test golden_data, which makes it");
  std::vector<GoldenCase> cases;
  for (const auto& entry : nlohmann::json::parse(file)) {
    if (quick && !entry.at("quick").get<bool>()) continue;
    GoldenCase item{.name = entry.at("name").get<std::string>(), .folder = {}, .image = {}};
    item.fp8_index = entry.at("index").get<std::string>() == "fp8";
    item.folder = folder + "/" + item.name;
    if (!entry.at("image").is_null()) item.image = entry.at("image").get<std::pair<int64_t, int64_t>>();
    cases.push_back(item);
  }
  FOLIO_CHECK(!cases.empty(), folder);
  return cases;
}

GoldenFile::GoldenFile(const GoldenCase& golden_case) : file_(golden_case.folder + "/golden.safetensors") {
  for (const SafetensorsEntry& entry : file_.header().tensors) views_[entry.name] = file_.view(entry);
}

const TensorView& GoldenFile::view(const std::string& key) const {
  const auto found = views_.find(key);
  if (found == views_.end()) fail(ErrorCode::kNotFound, file_.path(), " has no tensor ", key);
  return found->second;
}

}  // namespace folio::golden
