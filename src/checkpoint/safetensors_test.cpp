#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_test_util.h"

namespace folio {
namespace {

using testing::expect_error;
using testing::safetensors;
using testing::TemporaryDirectory;

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "a.safetensors");
}

// A description of one tensor for a header.
std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// Pads the header to a multiple of 8, as writers do.
std::string file_of(std::string header, size_t payload) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return safetensors(header, std::string(payload, '\1'));
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string file =
      file_of("{\"__metadata__\":{\"format\":\"pt\",\"note\":\"caf\\u00e9\"}," +
                  tensor("b", "BF16", "[2,3]", "[8,20]") + "," + tensor("a", "F32", "[2]", "[0,8]") + "," +
                  tensor("scalar", "U8", "[]", "[20,21]") + "," + tensor("empty", "F32", "[0,7]", "[8,8]") + "}",
              21);
  const SafetensorsHeader header = parse(file);
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "empty");
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_EQ(header.tensors[2].dtype, DType::kBF16);
  EXPECT_EQ(header.tensors[2].shape, (Shape{2, 3}));
  EXPECT_EQ(header.tensors[2].offset, static_cast<int64_t>(file.size()) - 13);
  EXPECT_EQ(header.tensors[3].bytes(), 1);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.metadata.at("note"), "caf\u00e9");
}

TEST(Safetensors, EmptyHeader) { EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty()); }

struct Broken {
  const char* name;
  std::string file;
  std::vector<std::string> says;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenFile : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenFile, IsRefusedWithItsReason) {
  std::vector<std::string> says = GetParam().says;
  says.push_back("a.safetensors: ");
  expect_error(ErrorCode::kInvalidCheckpoint, says, [] { parse(GetParam().file); });
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t payload) {
  return file_of("{" + tensor("w", dtype, shape, offsets) + "}", payload);
}
std::string bytes_of(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

INSTANTIATE_TEST_SUITE_P(
    Framing, BrokenFile,
    ::testing::Values(
        Broken{"empty_file", "", {"only 0 bytes"}}, Broken{"seven_bytes", "1234567", {"only 7 bytes"}},
        Broken{"huge_length", bytes_of(UINT64_MAX) + "{}", {"claims a header of 18446744073709551615 bytes"}},
        Broken{"length_over_limit", bytes_of(kMaxSafetensorsHeader + 1) + "{}", {"more than the limit"}},
        Broken{"length_past_end", bytes_of(100) + "{}", {"claims a header of 100 bytes", "truncated?"}},
        Broken{"no_header", bytes_of(0), {"does not begin with '{'"}},
        Broken{"list", file_of("[]", 0), {"does not begin with '{'"}},
        Broken{"leading_space", file_of(" {}", 0), {"does not begin with '{'"}},
        Broken{"cut_json", file_of("{\"w\":{\"dtype\":", 0), {"not valid JSON at byte"}},
        Broken{"text_after_json", file_of("{} x", 0), {"not valid JSON at byte"}},
        Broken{"bad_utf8", file_of("{\"\xff\":1}", 0), {"not valid JSON at byte"}},
        Broken{"depth_bomb", file_of("{\"w\":{\"shape\":" + std::string(100000, '['), 0), {"\"w\"", "shape"}},
        Broken{"object_bomb",
               file_of("{\"w\":{\"dtype\":{\"a\":{\"b\":", 0),
               {"\"w\"", "dtype must be a string, is an object"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Description, BrokenFile,
    ::testing::Values(
        Broken{"number_for_tensor", file_of("{\"w\":1}", 0), {"\"w\" must be described by an object"}},
        Broken{"list_for_tensor", file_of("{\"w\":[]}", 0), {"\"w\" must be described by an object, is a list"}},
        Broken{"no_dtype", file_of("{\"w\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1), {"\"w\" lacks dtype"}},
        Broken{"no_offsets", file_of("{\"w\":{\"dtype\":\"U8\",\"shape\":[]}}", 1), {"\"w\" lacks"}},
        Broken{"no_shape", file_of("{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1), {"\"w\" lacks"}},
        Broken{"unknown_dtype", one("F8_E5M2", "[1]", "[0,1]", 1), {"\"w\" has the unknown dtype \"F8_E5M2\""}},
        Broken{"lower_case_dtype", one("f32", "[1]", "[0,4]", 4), {"unknown dtype \"f32\""}},
        Broken{"dtype_is_a_number", file_of("{\"w\":{\"dtype\":3}}", 0), {"dtype must be a string, is a number"}},
        Broken{"unknown_field",
               file_of("{\"w\":{\"type\":\"U8\"}}", 0),
               {"\"w\" has an unknown or repeated field \"type\""}},
        Broken{"dtype_twice",
               file_of("{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0),
               {"unknown or repeated field \"dtype\""}},
        Broken{
            "shape_twice", file_of("{\"w\":{\"shape\":[],\"shape\":[]}}", 0), {"unknown or repeated field \"shape\""}},
        Broken{"shape_is_a_number", file_of("{\"w\":{\"shape\":3}}", 0), {"shape must be a list of sizes"}},
        Broken{
            "negative_size", one("U8", "[-1]", "[0,1]", 1), {"shape must be a list of sizes, has a negative number"}},
        Broken{"fractional_size",
               one("U8", "[1.5]", "[0,1]", 1),
               {"shape must be a list of sizes, has a number that is no integer"}},
        Broken{"text_size", one("U8", "[\"1\"]", "[0,1]", 1), {"shape must be a list of sizes, has a string"}},
        Broken{"null_size", one("U8", "[null]", "[0,1]", 1), {"has null"}},
        Broken{"nested_size", one("U8", "[[1]]", "[0,1]", 1), {"has a list"}},
        Broken{"five_dimensions", one("U8", "[1,1,1,1,1]", "[0,1]", 1), {"\"w\" has more than 4 dimensions"}},
        Broken{"huge_size",
               one("U8", "[18446744073709551615]", "[0,1]", 1),
               {"number 18446744073709551615, which is out of range"}},
        Broken{"larger_than_64_bits", one("U8", "[99999999999999999999999]", "[0,1]", 1), {"no integer"}},
        Broken{"product_overflows",
               one("F32", "[4294967296,4294967296]", "[0,4]", 4),
               {"\"w\" has a shape of too many elements"}},
        Broken{"product_overflows_to_zero", one("U8", "[4294967296,4294967296,1]", "[0,0]", 0), {"too many elements"}},
        Broken{"one_offset", one("U8", "[1]", "[0]", 1), {"\"w\" needs two data_offsets"}},
        Broken{"three_offsets", one("U8", "[1]", "[0,1,2]", 1), {"data_offsets must be a list of two offsets"}},
        Broken{"no_offset", one("U8", "[1]", "[]", 1), {"\"w\" needs two data_offsets"}},
        Broken{"negative_offset",
               one("U8", "[1]", "[-1,0]", 1),
               {"data_offsets must be a list of two offsets, has a negative number"}},
        Broken{"control_character", file_of("{\"a\\nb\":1}", 0), {"\"a?b\""}},
        Broken{"metadata_number",
               file_of("{\"__metadata__\":{\"a\":1}}", 0),
               {"metadata \"a\" must be a string, is a number"}},
        Broken{"metadata_list", file_of("{\"__metadata__\":[]}", 0), {"__metadata__ must be an object, is a list"}},
        Broken{"metadata_key_twice",
               file_of("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0),
               {"metadata \"a\" appears twice"}},
        Broken{"metadata_twice",
               file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
               {"__metadata__", "appears twice"}}),
    [](const auto& broken) { return broken.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Layout, BrokenFile,
    ::testing::Values(
        Broken{"begin_after_end", one("U8", "[0]", "[1,0]", 1), {"\"w\" ends at byte 0 before it begins at 1"}},
        Broken{"past_end", one("U8", "[4]", "[0,4]", 3), {"\"w\" ends at byte 4", "has only 3", "truncated?"}},
        Broken{"size_is_not_shape", one("U8", "[3]", "[0,4]", 4), {"\"w\" has 4 bytes, but U8 [3] needs 3"}},
        Broken{"overlap",
               file_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("w", "U8", "[4]", "[2,6]") + "}", 6),
               {"\"a\" and \"w\" overlap at byte 2"}},
        Broken{"same_bytes",
               file_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("w", "U8", "[4]", "[0,4]") + "}", 4),
               {"overlap at byte 0"}},
        Broken{"hole",
               file_of("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("w", "U8", "[1]", "[3,4]") + "}", 4),
               {"bytes 1 to 3", "\"w\"", "no tensor"}},
        Broken{"hole_at_start", one("U8", "[1]", "[1,2]", 2), {"bytes 0 to 1"}},
        Broken{"bytes_after_the_last", one("U8", "[1]", "[0,1]", 9), {"the last 8 bytes"}},
        Broken{"name_twice",
               file_of("{" + tensor("w", "U8", "[1]", "[0,1]") + "," + tensor("w", "U8", "[1]", "[1,2]") + "}", 2),
               {"\"w\" appears twice"}}),
    [](const auto& broken) { return broken.param.name; });

// Every prefix of a good file is refused and nothing else happens.
TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = file_of("{" + tensor("w", "F32", "[2]", "[0,8]") + "}", 8);
  for (size_t size = 0; size < file.size(); ++size) EXPECT_THROW(parse(file.substr(0, size)), Error) << size;
  EXPECT_NO_THROW(parse(file));
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TemporaryDirectory directory;
  const std::string path = directory / "out.safetensors";
  const std::vector<DType> dtypes = {DType::kU8,     DType::kF32, DType::kBF16, DType::kF8E4M3,
                                     DType::kF8E8M0, DType::kI32, DType::kI64,  DType::kI8};
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const DType dtype : dtypes) tensors.push_back({"t." + std::string(dtype_name(dtype)), dtype, {3, 5}});
  tensors.push_back({"empty \"name\"", DType::kF32, {0, 4}});
  tensors.push_back({"scalar", DType::kI64, {}});
  const auto bytes_of_tensor = [](const std::string& name, int64_t size) {
    return std::string(static_cast<size_t>(size), name.back());
  };
  {
    SafetensorsWriter writer(path, tensors, {{"config", "{\"a\": 1}"}, {"note", "caf\u00e9"}});
    EXPECT_FALSE(testing::fs::exists(path));
    // In two pieces, from two threads, in the caller's order.
    const auto write = [&](int64_t half) {
      for (const SafetensorsWriter::Tensor& t : tensors) {
        const int64_t size = t.shape.elements() * dtype_size(t.dtype);
        const std::string bytes = bytes_of_tensor(t.name, size);
        const auto cut = static_cast<size_t>(size / 2);
        const std::string piece = half == 0 ? bytes.substr(0, cut) : bytes.substr(cut);
        writer.write(t.name, std::as_bytes(std::span(piece)), half == 0 ? 0 : static_cast<int64_t>(cut));
      }
    };
    std::thread other(write, 1);
    write(0);
    other.join();
    writer.finish();
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(file.header().metadata.at("config"), "{\"a\": 1}");
  EXPECT_EQ(file.header().metadata.at("note"), "caf\u00e9");
  ASSERT_EQ(file.header().tensors.size(), tensors.size());
  for (const SafetensorsWriter::Tensor& t : tensors) {
    const SafetensorsEntry* entry = file.find(t.name);
    ASSERT_NE(entry, nullptr) << t.name;
    EXPECT_EQ(entry->dtype, t.dtype);
    EXPECT_EQ(entry->shape, t.shape);
    const TensorView view = file.view(*entry);
    const std::string stored(reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
    EXPECT_EQ(stored, bytes_of_tensor(t.name, view.bytes()));
  }
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(std::distance(testing::fs::directory_iterator(directory.path()), {}), 1);  // no temporary file is left
}

TEST(SafetensorsWriter, AnUnfinishedFileLeavesNothing) {
  const TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory / "out.safetensors", {{"a", DType::kF32, {1000}}});
    EXPECT_EQ(writer.payload_bytes(), 4000);
  }
  EXPECT_TRUE(testing::fs::is_empty(directory.path()));
}

TEST(SafetensorsWriter, NamesThePathThatCannotBeWritten) {
  const TemporaryDirectory directory;
  expect_error(ErrorCode::kInvalidArgument, {directory.path().string(), "not a regular file"},
               [&] { SafetensorsWriter(directory.path().string(), {{"a", DType::kF32, {1}}}); });
  expect_error(ErrorCode::kInvalidArgument, {"/nowhere/out.safetensors", "4 bytes", "No such file"},
               [] { SafetensorsWriter("/nowhere/out.safetensors", {{"a", DType::kF32, {1}}}); });
}

TEST(SafetensorsFile, NamesTheFileThatIsNotThere) {
  expect_error(ErrorCode::kNotFound, {"/nowhere.safetensors"}, [] { SafetensorsFile("/nowhere.safetensors"); });
}

// The format promises no alignment; who reads elements copies what is not aligned (ops/ref/host_weights).
TEST(Safetensors, AcceptsUnalignedTensors) {
  const std::string file =
      file_of("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("w", "F32", "[1]", "[1,5]") + "}", 5);
  const SafetensorsHeader header = parse_safetensors(std::as_bytes(std::span(file)), "file");
  EXPECT_EQ(header.tensors[1].offset, header.tensors[0].offset + 1);
}

}  // namespace
}  // namespace folio
