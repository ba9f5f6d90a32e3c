#include "support/small_model.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "checkpoint/synthesize.h"
#include "tokenizer/compressed_vocab.h"

namespace folio::test {
namespace {

namespace fs = std::filesystem;

struct TemporaryDirectory {
  fs::path path = fs::temp_directory_path() / concat("folio-test-", ::getpid());
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

std::string small_model(const std::string& preset, uint64_t seed) {
  static const TemporaryDirectory directory;
  const fs::path dir = directory.path / concat(preset, "-", seed);
  if (fs::exists(dir)) return dir.string();
  SynthesizeOptions options;
  options.preset = preset;
  options.seed = seed;
  options.out = dir.string();
  options.compressed_vocab_size = [](const std::string& path) {
    return compressed_vocabulary(Tokenizer::load(path)).count;
  };
  synthesize_checkpoint(options);
  return dir.string();
}

}  // namespace folio::test
