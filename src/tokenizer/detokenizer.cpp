#include "tokenizer/detokenizer.h"

#include "tokenizer/utf8.h"

namespace folio {

std::string Detokenizer::push(int32_t id) {
  tokenizer_->check_ids({&id, 1});
  std::string text;
  if (skip_hidden_ && tokenizer_->is_hidden(id)) return text;
  pending_.append(tokenizer_->bytes(id));
  pending_.erase(0, pending_.size() - append_utf8(pending_, false, text));
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  append_utf8(pending_, true, text);
  pending_.clear();
  return text;
}

}  // namespace folio
