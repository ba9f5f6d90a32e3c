#include "checkpoint/shard_index.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/text.h"

namespace folio {
namespace {

using nlohmann::json;

// Receives model.safetensors.index.json as events and keeps the weight map: tensor name -> file name.
class IndexReader final : public nlohmann::json_sax<json> {
 public:
  explicit IndexReader(const std::string& origin) : origin_(origin) {}

  WeightMap take() {
    if (!seen_) refuse("there is no weight_map");
    return std::move(weight_map_);
  }

  bool key(std::string& name) override {
    key_ = name;
    if (depth_ == 1 && name == "weight_map") {
      if (std::exchange(seen_, true)) refuse("weight_map appears twice");
      pending_ = true;
    }
    return true;
  }
  bool start_object(size_t) override {
    open();
    if (std::exchange(pending_, false)) inside_ = true;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2) inside_ = false;
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (pending_) refuse("weight_map must be an object");
    open();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool string(std::string& value) override {
    scalar();
    if (inside_ && !weight_map_.emplace(key_, value).second)
      refuse("tensor ", quote(key_), " appears twice in weight_map");
    return true;
  }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(int64_t) override { return other(); }
  bool number_unsigned(uint64_t) override { return other(); }
  bool number_float(double, const std::string&) override { return other(); }
  bool binary(json::binary_t&) override { return other(); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    refuse("not valid JSON at byte ", position);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::kInvalidCheckpoint, origin_, ": ", parts...);
  }
  void open() {
    if (inside_) refuse("tensor ", quote(key_), " must be mapped to a file name");
    if (++depth_ > kMaxJsonDepth) refuse("nested deeper than ", kMaxJsonDepth, " levels");
  }
  void scalar() {
    if (depth_ == 0) refuse("must be a JSON object");
    if (pending_) refuse("weight_map must be an object");
  }
  bool other() {
    scalar();
    if (inside_) refuse("tensor ", quote(key_), " must be mapped to a file name");
    return true;
  }

  const std::string& origin_;
  WeightMap weight_map_;
  std::string key_;
  int depth_ = 0;
  bool seen_ = false;     // the key weight_map
  bool pending_ = false;  // its value comes next
  bool inside_ = false;
};

}  // namespace

WeightMap parse_weight_map(std::string_view text, const std::string& origin) {
  IndexReader reader(origin);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace folio
