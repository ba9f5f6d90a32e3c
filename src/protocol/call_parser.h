// The inside of a block of tool calls, while it comes (protocol spec 3.2, states Calls, Params, Value, Done).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/delta.h"
#include "protocol/tools.h"

namespace folio {

// Starts behind the opener of the block, or at the opener of a call. Copyable.
class CallParser {
 public:
  // `tools` may be null: nothing is known of the types of arguments.
  explicit CallParser(std::shared_ptr<const std::vector<Tool>> tools) : tools_(std::move(tools)) {}

  void push(std::string_view text, std::vector<Delta>& out);
  // The end of the text. A call that only lacks its closer is completed when the model has `stopped`; what lacks more
  // stays as it is.
  void finish(bool stopped, std::vector<Delta>& out);

  bool done() const { return state_ == State::kDone; }
  int32_t begun() const { return begun_; }
  int32_t completed() const { return completed_; }
  size_t dropped_bytes() const { return dropped_; }

 private:
  enum class State : uint8_t {
    kCalls,       // between calls
    kName,        // behind <invoke name="
    kTagEnd,      // behind the name
    kParameters,  // between parameters
    kKey,         // behind <parameter name="
    kValue,
    kValueEnd,  // behind the marker that ended a value
    kBody,      // a JSON object in the place of parameters
    kDone,
  };
  enum class ValueMode : uint8_t { kStream, kHold, kDiscard };

  // Each takes what it can from rest() and says whether to go on: false when more text is needed.
  bool step(std::vector<Delta>& out);
  bool calls();
  bool name();
  bool tag_end(std::vector<Delta>& out);
  bool parameters(std::vector<Delta>& out);
  bool key(bool at_end, std::vector<Delta>& out);
  bool value(std::vector<Delta>& out);
  bool value_end(std::vector<Delta>& out);
  bool body(std::vector<Delta>& out);

  std::string_view rest() const { return std::string_view(pending_).substr(at_); }
  void take(size_t count) { at_ += count, scanned_ = 0; }
  void drop(size_t count);
  void drop_text(std::string_view text);
  void enter(State state) { state_ = state, scanned_ = 0; }
  void begin_value(std::vector<Delta>& out);
  void write_key(const std::string& key, std::vector<Delta>& out);
  void write_members(const Json::Object& members, std::vector<Delta>& out);
  void write_held(std::string_view text, std::vector<Delta>& out);
  void arguments(std::string_view text, std::vector<Delta>& out);
  void complete(State next, std::vector<Delta>& out);

  std::shared_ptr<const std::vector<Tool>> tools_;
  State state_ = State::kCalls;
  std::string pending_;  // text that is not understood yet, from at_ on
  size_t at_ = 0;
  size_t scanned_ = 0;  // bytes of rest() that the current state has looked through
  size_t dropped_ = 0;
  int32_t begun_ = 0, completed_ = 0;

  // Of the current call.
  std::string name_;
  const Tool* tool_ = nullptr;
  std::set<std::string, std::less<>> keys_;
  bool fresh_ = true;  // nothing but white space has come

  // Of the current value.
  std::string key_;
  ValueMode mode_ = ValueMode::kHold;
  bool is_string_ = false;
  bool unwrap_ = false;
};

}  // namespace folio
