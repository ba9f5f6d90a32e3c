#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace folio {
namespace {

namespace fs = std::filesystem;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() { fs::create_directories(directory_); }
  ~MemoryTest() override { fs::remove_all(directory_); }
  std::string path(const char* name) const { return (directory_ / name).string(); }
  std::string file(const char* name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

 private:
  const fs::path directory_ = fs::temp_directory_path() / concat("folio-memory-test-", ::getpid());
};

template <typename Call>
ErrorCode code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST_F(MemoryTest, ReadsFilesUpToTheLimit) {
  const std::string content = std::string(200000, 'x') + std::string("\0y", 2);
  EXPECT_EQ(read_file(file("large", content), content.size()), content);
  EXPECT_EQ(read_file(file("empty", ""), 0), "");
  EXPECT_EQ(code_of([&] { read_file(path("large"), content.size() - 1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { read_file(path("gone"), 10); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { read_file(fs::path(path("x")).parent_path().string(), 10); }), ErrorCode::kNotFound);
}

TEST_F(MemoryTest, ReadsPipesAndDevices) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string content(100000, 'z');
  std::thread writer([&] { std::ofstream(path("pipe")) << content; });
  EXPECT_EQ(read_file(path("pipe"), 1 << 20), content);
  writer.join();
  EXPECT_EQ(read_file("/dev/null", 10), "");
  EXPECT_EQ(code_of([] { read_file("/dev/zero", 1 << 20); }), ErrorCode::kInvalidArgument);
}

TEST_F(MemoryTest, MapsRegularFilesOnly) {
  const MappedFile mapped(file("data", "abc"));
  EXPECT_EQ(mapped.bytes().size(), 3u);
  EXPECT_TRUE(MappedFile(file("empty", "")).bytes().empty());
  EXPECT_EQ(code_of([] { MappedFile("/dev/null"); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { MappedFile(path("gone")); }), ErrorCode::kNotFound);
}

TEST(AvailableMemory, IsSomeOfThisMachine) {
  EXPECT_GT(available_memory(), 0);
  EXPECT_LT(available_memory(), int64_t{1} << 50);
}

}  // namespace
}  // namespace folio
