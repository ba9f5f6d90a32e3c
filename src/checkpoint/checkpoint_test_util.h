// Checkpoints for tests: a nano one made once, and copies of it that a test may damage.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "checkpoint/synthesize.h"

namespace folio::testing {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A directory that is removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    static int count = 0;
    path_ = fs::temp_directory_path() / ("folio-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    fs::create_directories(path_);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

inline std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

// A safetensors file of a header text and a payload.
inline std::string safetensors(const std::string& header, const std::string& payload) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + payload;
}

inline SynthesizeOptions nano_options(const std::string& out) {
  SynthesizeOptions options;
  options.out = out;
  options.compressed_vocab_size = [](const std::string&) { return 284; };
  return options;
}

// The nano checkpoint that all tests share; read only.
inline const fs::path& nano_checkpoint() {
  static const TemporaryDirectory directory;
  static const bool made = [] {
    synthesize_checkpoint(nano_options(directory.path().string()));
    return true;
  }();
  (void)made;
  return directory.path();
}

// A nano checkpoint to damage: links to the shared files until they are written.
class Copy {
 public:
  Copy() {
    for (const auto& file : fs::directory_iterator(nano_checkpoint())) {
      fs::create_symlink(file.path(), directory_.path() / file.path().filename());
    }
  }

  std::string path() const { return directory_.path().string(); }
  fs::path file(const std::string& name) const { return directory_.path() / name; }

  void bytes(const std::string& name, const std::function<void(std::string&)>& edit) {
    std::string content = read_bytes(file(name));
    edit(content);
    write_bytes(file(name), content);
  }
  void json(const std::string& name, const std::function<void(Json&)>& edit) {
    bytes(name, [&](std::string& content) {
      Json value = Json::parse(content);
      edit(value);
      content = value.dump();
    });
  }
  void config(const std::function<void(Json&)>& edit) { json("config.json", edit); }
  void weight_map(const std::function<void(Json&)>& edit) {
    json("model.safetensors.index.json", [&](Json& index) { edit(index["weight_map"]); });
  }
  // Edits the header of a shard. The payload stays.
  void header(const std::string& name, const std::function<void(Json&)>& edit) {
    bytes(name, [&](std::string& content) {
      uint64_t length = 0;
      std::memcpy(&length, content.data(), sizeof length);
      Json value = Json::parse(content.substr(sizeof length, length));
      edit(value);
      std::string text = value.dump();
      text.resize((text.size() + 7) / 8 * 8, ' ');
      content = safetensors(text, content.substr(sizeof length + length));
    });
  }

 private:
  TemporaryDirectory directory_;
};

// Expects that `act` throws an Error of `code` whose one-line message has every one of `parts`.
inline void expect_error(ErrorCode code, const std::vector<std::string>& parts, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 12000u);
  }
}

}  // namespace folio::testing
