#include "engine/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <span>

#include "core/error.h"
#include "tests/support/memory_file_system.h"

namespace trivet::checkpoint {
namespace {

using ::testing::HasSubstr;
using trivet::support::MemoryFileSystem;

std::string file_of(const std::string& json, const std::string& data = "") {
  const uint64_t bytes = json.size();
  return std::string(reinterpret_cast<const char*>(&bytes), 8) + json + data;
}

SafetensorsHeader header_of(const ReadableFile& file) {
  std::string text(file.size(), '\0');
  file.read_exactly(0, std::as_writable_bytes(std::span(text)));
  return parse_safetensors_header(text, file.size(), file.path());
}

template <typename T>
void read_data(const ReadableFile& file, const SafetensorsHeader& header, const TensorEntry& entry, std::vector<T>& data) {
  file.read_exactly(header.data_start + entry.begin, std::as_writable_bytes(std::span(data)));
}

std::string parse_error(const std::string& bytes) {
  MemoryFileSystem files;
  write_text(files, "/f", bytes);
  try {
    header_of(*files.open("/f"));
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::CheckpointCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("/f: "));
    return error.what();
  }
  return "accepted";
}

// A file whose only tensor "a" has these members.
std::string with(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t data_bytes = 24) {
  return file_of(R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                 std::string(data_bytes, '\0'));
}

TEST(Safetensors, WritesAndReadsEveryDType) {
  MemoryFileSystem files;
  SafetensorsHeader written;
  std::map<std::string, std::vector<std::byte>> memory;
  for (const auto& [name, dtype] : EnumNames<DType>::table) {
    written.tensors.push_back({std::string(name), dtype, {2, 3}, 0, 0});
    memory[std::string(name)] = std::vector(6 * size_of(dtype), static_cast<std::byte>(memory.size() + 1));
  }
  std::string content = layout_safetensors(written);
  for (const TensorEntry& entry : written.tensors)
    for (const std::byte byte : memory.at(entry.name)) content += static_cast<char>(byte);
  write_text(files, "/f", content);
  const auto file = files.open("/f");
  const SafetensorsHeader header = header_of(*file);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_start % 8, 0);
  ASSERT_EQ(header.tensors.size(), 8u);
  for (const auto& [name, bytes] : memory) {
    const TensorEntry* entry = header.find(name);
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->shape, (Shape{2, 3}));
    EXPECT_EQ(entry->begin % size_of(entry->dtype), 0) << "aligned to its own size";
    std::vector<std::byte> read(bytes.size());
    read_data(*file, header, *entry, read);
    EXPECT_EQ(read, bytes);
  }
}

TEST(Safetensors, AcceptsScalarsEmptyTensorsAndWhiteSpaceAroundTheHeader) {
  EXPECT_EQ(parse_error(with(R"("F32")", "[]", "[0,4]", 4)), "accepted");
  EXPECT_EQ(parse_error(with(R"("F32")", "[0,3]", "[0,0]", 0)), "accepted");
  EXPECT_EQ(parse_error(file_of("\n {}  ")), "accepted");
}

TEST(Safetensors, RefusesAHeaderThatIsNotOne) {
  EXPECT_THAT(parse_error("<"), HasSubstr("1 bytes are too few"));
  EXPECT_THAT(parse_error(std::string("<\0\0\0\0\0\0\0", 8)), HasSubstr("the header says it has 60 bytes, the file has 8"));
  EXPECT_THAT(parse_error(std::string("\0\0\0\0\0\0\0\x20", 8)),
              HasSubstr("says it has 2305843009213693952 bytes; at most 100000000"));
  EXPECT_THAT(parse_error(file_of("\xff")), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error(file_of("{")), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error(file_of("[]")), HasSubstr("the header is not an object"));
  EXPECT_THAT(parse_error(file_of(R"({"__metadata__":{"a":1}})")), HasSubstr("1 is not a string"));
  EXPECT_THAT(parse_error(file_of(R"({"__metadata__":{"a":"1","a":"2"}})")), HasSubstr("key \"a\" appears twice"));
  EXPECT_THAT(parse_error(file_of(R"({"__metadata__":{"":"1","":"2"}})")), HasSubstr("key \"\" appears twice"));
  EXPECT_THAT(parse_error(file_of(std::string(10000, '['))), HasSubstr("nested deeper than 16"));
}

TEST(Safetensors, RefusesNumbersThatDoNotFit) {
  EXPECT_THAT(parse_error(with(R"("F99")", "[6]", "[0,24]")),
              HasSubstr("tensor \"a\": dtype \"F99\" is not accepted; weights are F32"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[7]", "[0,24]")), HasSubstr("data_offsets [0, 24] do not hold [7] float32"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[-1]", "[0,24]")), HasSubstr("-1 is not a count from 0 to 2^62"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[0.5]", "[0,24]")), HasSubstr("0.5 is not a count"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[2,18446744073709551614]", "[0,24]")),
              HasSubstr("18446744073709551614 is not a count"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[2305843009213693952,2305843009213693952]", "[0,24]")),
              HasSubstr("more than 2^62 elements"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[4611686018427387904]", "[0,24]")), HasSubstr("do not hold"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[1,1,1,1,1,1,6]", "[0,24]")), HasSubstr("7 dims; at most 6"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[6]", "[24,0]")), HasSubstr("do not hold"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[6]", "[0]")), HasSubstr("not two numbers"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[6]", "[0,24]", 23)), HasSubstr("the header says 87 bytes, the file has 86"));
  EXPECT_THAT(parse_error(with(R"("F32")", "[6]", "[0,24]", 25)), HasSubstr("the header says 87 bytes, the file has 88"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[6]}})")), HasSubstr("\"data_offsets\" is missing"));
}

TEST(Safetensors, RefusesHolesOverlapsAndDuplicates) {
  const auto two = [](const std::string& first, const std::string& second, const std::string& name = "b") {
    return file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first + R"(},")" + name +
                       R"(":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                   std::string(8, '\0'));
  };
  EXPECT_EQ(parse_error(two("[4,8]", "[0,4]")), "accepted");
  EXPECT_THAT(parse_error(two("[0,4]", "[2,6]")),
              HasSubstr("tensor \"b\" starts at byte 2 of the data, 4 is expected: an overlap"));
  EXPECT_THAT(parse_error(two("[0,4]", "[6,10]")),
              HasSubstr("tensor \"b\" starts at byte 6 of the data, 4 is expected: a hole"));
  EXPECT_THAT(parse_error(two("[0,4]", "[4,8]", "a")), HasSubstr("key \"a\" appears twice"));
}

// Reads a tensor from a file on disk. A missing name, another type or another shape fails the test.
template <typename T>
std::vector<T> read_from(const std::string& path, const std::string& name, const Shape& shape) {
  const auto file = real_file_system().open(path);
  const SafetensorsHeader header = header_of(*file);
  const TensorEntry* entry = header.find(name);
  std::vector<T> data(shape.elements());
  if (entry == nullptr || entry->dtype != kDTypeOf<T> || entry->shape != shape) {
    ADD_FAILURE() << path << ": " << name << " is missing, or not as expected";
    return data;
  }
  read_data(*file, header, *entry, data);
  return data;
}

// The numbers are what Python's struct.unpack finds at the offsets of the header.
TEST(Safetensors, ReadsAFileWrittenByAnotherProgram) {
  const std::string path = TRIVET_SOURCE_DIR "/tests/golden/llama_tiny.safetensors";  // llama_reference.py
  EXPECT_EQ(header_of(*real_file_system().open(path)).tensors.size(), 34u);
  const auto tokens = read_from<int32_t>(path, "tokens", {2, 9});
  EXPECT_EQ((std::vector<int32_t>(tokens.begin(), tokens.begin() + 3)), (std::vector<int32_t>{29, 51, 48}));
  const auto logits = read_from<double>(path, "logits", {2, 9, 61});
  EXPECT_EQ(logits[0], -0.14583306610329866);
  EXPECT_EQ(logits[2], 0.5035790403458759);
  const auto gain = read_from<float>(path, "weight.head.norm.gain", {24});
  EXPECT_EQ(gain[0], 1.2831387519836426f);
  EXPECT_EQ(gain[2], 1.0760794878005981f);
  EXPECT_EQ(read_from<float>(path, "weight.head.weight", {61, 24})[1], 0.46682876348495483f);
}

TEST(Safetensors, ReadsAFileOfHuggingFace) {
  const std::string path = TRIVET_SOURCE_DIR "/../shared/data/tiny-gpt2-random/model.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  EXPECT_EQ(header_of(*real_file_system().open(path)).tensors.size(), 40u);
  EXPECT_EQ(read_from<float>(path, "transformer.wte.weight", {320, 48})[1], -0.0952780544757843f);
  EXPECT_EQ(read_from<float>(path, "transformer.h.2.mlp.c_proj.bias", {48})[2], -0.017100127413868904f);
  EXPECT_EQ(read_from<float>(path, "transformer.h.0.attn.c_attn.weight", {48, 144})[0], -0.11343186348676682f);
}

}  // namespace
}  // namespace trivet::checkpoint
