#include "default_model.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "bundled_files.h"
#include "checkpoint/synthesize.h"
#include "interrupt.h"
#include "tokenizer/compressed_vocab.h"

namespace folio {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeed = 1;
// Part of the directory's name: raise it when synthesize writes other bytes for the same preset and seed.
constexpr int kRevision = 1;

fs::path cache_directory() {
  // A relative XDG_CACHE_HOME counts as unset, as the XDG base directory specification says.
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/') return fs::path(xdg) / "folio";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache" / "folio";
  fail(ErrorCode::kInvalidArgument, "neither XDG_CACHE_HOME nor HOME is set: name a checkpoint with --model DIR");
}

// Made on construction; what is still there goes on destruction.
struct PartialDirectory {
  explicit PartialDirectory(fs::path where) : path(std::move(where)) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
      fail(ErrorCode::kInvalidArgument, "cannot make ", path.string(), ": ", error.message(),
           ": set XDG_CACHE_HOME to a writable directory or name a checkpoint with --model DIR");
    }
  }
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  ~PartialDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  const fs::path path;
};

// Makes `dir` with `write(where)`, unless it is there and `complete(dir)`: written aside and renamed, so that no other
// process ever sees half of it.
template <typename Complete, typename Write>
std::string made_once(const fs::path& dir, const Complete& complete, const Write& write) {
  if (complete(dir)) return dir.string();
  const PartialDirectory partial(dir.string() + concat(".", ::getpid()));
  write(partial.path);
  std::error_code error;
  if (!complete(dir)) fs::remove_all(dir, error);  // what somebody damaged; else another process was faster
  fs::rename(partial.path, dir, error);
  if (error && !complete(dir)) {
    fail(ErrorCode::kInvalidArgument, "cannot make ", dir.string(), ": ", error.message());
  }
  return dir.string();
}

bool has_bundled_model(const fs::path& dir) {
  return std::ranges::all_of(bundled_model_files(), [&](const BundledFile& file) {
    std::error_code error;
    return fs::file_size(dir / file.name, error) == file.bytes.size() && !error;
  });
}

void unpack_bundled_model(const fs::path& where) {
  for (const BundledFile& file : bundled_model_files()) {
    std::ofstream out(where / file.name, std::ios::binary);
    out.write(file.bytes.data(), static_cast<std::streamsize>(file.bytes.size()));
    if (!out.flush()) {
      fail(ErrorCode::kInvalidArgument, "cannot write ", (where / file.name).string(),
           ": make room, set XDG_CACHE_HOME or name a checkpoint with --model DIR");
    }
  }
}

void synthesize_preset(const std::string& preset, const fs::path& where, const fs::path& shown) {
  SynthesizeOptions options;
  options.preset = preset;
  options.seed = kSeed;
  options.out = where.string();
  options.compressed_vocab_size = count_compressed_ids;
  const bool progress = isatty(STDERR_FILENO) != 0;
  catch_interrupts();
  options.progress = [&](int64_t done, int64_t total) {
    if (progress) {
      std::fprintf(stderr, "\rfolio: making %s: %3.0f %%%s", shown.c_str(),
                   100.0 * static_cast<double>(done) / static_cast<double>(total), done == total ? "\n" : "");
    }
    check_interrupt();
  };
  synthesize_checkpoint(options);
  release_interrupts();
}

}  // namespace

int64_t count_compressed_ids(const std::string& tokenizer_path) {
  return compressed_vocabulary(Tokenizer::load(tokenizer_path)).count;
}

std::string default_model_dir() {
  if (const char* named = std::getenv("FOLIO_MODEL"); named != nullptr && *named != '\0') return named;
  return made_once(cache_directory() / FOLIO_BUNDLED_MODEL, has_bundled_model, unpack_bundled_model);
}

std::string preset_model_dir(const std::string& preset) {
  const fs::path dir = cache_directory() / concat(preset, "-", kSeed, "-r", kRevision);
  const auto complete = [](const fs::path& made) {
    std::error_code error;
    return fs::exists(made / "config.json", error);
  };
  return made_once(dir, complete, [&](const fs::path& where) { synthesize_preset(preset, where, dir); });
}

}  // namespace folio
