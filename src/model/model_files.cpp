#include "model/model_files.h"

#include "base/error.h"
#include "tokenizer/compressed_vocab.h"

namespace folio {
namespace {

Tokenizer load_tokenizer(const Checkpoint& checkpoint) {
  Tokenizer tokenizer = Tokenizer::load(checkpoint.dir() + "/tokenizer.json");
  if (tokenizer.vocab_size() != checkpoint.config().vocab_size) {
    fail(ErrorCode::kInvalidTokenizer, checkpoint.dir(), "/tokenizer.json has ", tokenizer.vocab_size(),
         " tokens, config.json says vocab_size ", checkpoint.config().vocab_size, ": they are not of one model");
  }
  return tokenizer;
}

std::vector<int32_t> load_compressed(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  const Config& config = checkpoint.config();
  if (config.engram_layer_ids.empty()) return {};
  CompressedVocabulary vocabulary = compressed_vocabulary(tokenizer);
  if (vocabulary.count != config.engram_compressed_vocab_size) {
    fail(ErrorCode::kInvalidTokenizer, checkpoint.dir(), "/tokenizer.json gives ", vocabulary.count,
         " compressed ids, config.json says engram_compressed_vocab_size ", config.engram_compressed_vocab_size,
         ": Engram would look up wrong rows");
  }
  return std::move(vocabulary.map);
}

}  // namespace

ModelFiles ModelFiles::open(const std::string& dir) {
  Checkpoint checkpoint = Checkpoint::open(dir);
  Tokenizer tokenizer = load_tokenizer(checkpoint);
  std::vector<int32_t> compressed = load_compressed(checkpoint, tokenizer);
  return {std::move(checkpoint), std::move(tokenizer), std::move(compressed)};
}

int64_t ModelFiles::engram_table_bytes() const {
  int64_t bytes = 0;
  for (const int layer : checkpoint.config().engram_layer_ids) {
    bytes += checkpoint.tensor(concat("layers.", layer, ".engram.embed.weight")).bytes();
    bytes += checkpoint.tensor(concat("layers.", layer, ".engram.embed.scale")).bytes();
  }
  return bytes;
}

}  // namespace folio
