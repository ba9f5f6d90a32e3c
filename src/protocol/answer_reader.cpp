#include "protocol/answer_reader.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace folio {
namespace {

constexpr std::array<std::string_view, 2> kNextTurns = {"<｜User｜>", "<｜Assistant｜>"};

// Where a picture's things are: text for a reader.
constexpr std::array<std::string_view, 8> kGrounding = {"<｜polygon｜>", "<｜/polygon｜>", "<｜point｜>",
                                                        "<｜/point｜>",  "<｜box｜>",      "<｜/box｜>",
                                                        "<｜ref｜>",     "<｜/ref｜>"};

// Control tokens such as <｜User｜> are no text for a reader.
bool is_control(const Tokenizer& tokenizer, int32_t id) {
  if (!tokenizer.is_added(id)) return false;
  const std::string_view text = tokenizer.bytes(id);
  return text.starts_with("<｜") && text.ends_with("｜>") &&
         std::find(kGrounding.begin(), kGrounding.end(), text) == kGrounding.end();
}

}  // namespace

void AnswerReader::push(int32_t id, std::vector<Delta>& out) {
  tokenizer_->check_ids({&id, 1});
  if (parser_.reasoning()) ++reasoning_tokens_;
  if (!is_control(*tokenizer_, id)) parser_.push(detokenizer_.push(id), out);
}

void AnswerReader::finish(AnswerEnd end, std::vector<Delta>& out) {
  parser_.push(detokenizer_.flush(), out);
  parser_.finish(end, out);
}

std::vector<int32_t> chat_stop_ids(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string_view text : kNextTurns) {
    if (const auto id = tokenizer.find_added(text)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace folio
