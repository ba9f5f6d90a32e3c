#include "default_model.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/synthesize.h"
#include "tokenizer/compressed_vocab.h"

namespace folio {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultPreset = "mini";
constexpr uint64_t kSeed = 1;
// Part of the directory's name: raise it when synthesize writes other bytes for the same preset and seed.
constexpr int kRevision = 1;

fs::path cache_directory() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != '\0') return fs::path(xdg) / "folio";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache" / "folio";
  fail(ErrorCode::kInvalidArgument, "neither XDG_CACHE_HOME nor HOME is set: name a checkpoint with --model DIR");
}

}  // namespace

std::string default_model_dir() {
  std::fprintf(stderr, "folio: no --model given: using the built-in random model, whose text is noise\n");
  return preset_model_dir(kDefaultPreset);
}

std::string preset_model_dir(const std::string& preset) {
  const fs::path dir = cache_directory() / concat(preset, "-", kSeed, "-r", kRevision);
  if (fs::exists(dir / "config.json")) return dir.string();
  // Written aside and renamed, so that no other process ever sees half of it.
  const fs::path partial = dir.string() + concat(".", ::getpid());
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) {
    fail(ErrorCode::kInvalidArgument, "cannot make ", partial.string(), ": ", error.message(),
         ": set XDG_CACHE_HOME to a writable directory or name a checkpoint with --model DIR");
  }
  SynthesizeOptions options;
  options.preset = preset;
  options.seed = kSeed;
  options.out = partial.string();
  options.compressed_vocab_size = [](const std::string& path) {
    return compressed_vocabulary(Tokenizer::load(path)).count;
  };
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [&](int64_t done, int64_t total) {
      std::fprintf(stderr, "\rfolio: making %s: %3.0f %%%s", dir.c_str(),
                   100.0 * static_cast<double>(done) / static_cast<double>(total), done == total ? "\n" : "");
    };
  }
  synthesize_checkpoint(options);
  fs::rename(partial, dir, error);
  if (error) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    if (!fs::exists(dir / "config.json")) {  // else another process was faster
      fail(ErrorCode::kInvalidArgument, "cannot make ", dir.string(), ": ", error.message());
    }
  }
  return dir.string();
}

}  // namespace folio
