// Damaged, swapped and hostile checkpoints: each one gives a CheckpointError that names what is wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <functional>
#include <random>

#include "tests/checkpoint/participant_threads.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/memory_file_system.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kHome = "/c";
constexpr int64_t kLimit = int64_t{1} << 30;
const std::vector<SampleTensor> kTensors{{"weight", DType::BFloat16, {64, 96}, 0}, {"bias", DType::Float32, {50}, -1}};

class Corruption : public ::testing::Test {
 protected:
  Corruption() { save(10, "run-1"); }

  void save(int64_t step, const std::string& run_id, const std::string& directory = kHome) {
    run_ranks(2, [&](const Participants& ranks) {
      CheckpointStore store(files_, {.directory = directory, .run_id = run_id, .log = Log(0, LogLevel::Error)});
      const RankPieces mine = make_pieces({.data = 2}, ranks.rank, 3, true, kTensors);
      store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""}, ranks);
    });
  }
  static std::string directory_of(int64_t step) { return fmt::format("{}/step-{:08}", kHome, step); }
  static std::string shard(int rank, int64_t step = 10) {
    return fmt::format("{}/rank-{:05}.safetensors", directory_of(step), rank);
  }
  static std::string manifest() { return directory_of(10) + "/manifest.json"; }
  std::string text(const std::string& path) { return read_text(files_, path, kLimit); }

  // Returns "" if all is well.
  std::string error_of_verify() {
    try {
      LoadedStep(files_, directory_of(10)).verify();
      return "";
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::CheckpointCorrupt) << error.what();
      return error.what();
    }
  }
  // The error of verify() while the file holds other bytes.
  std::string error_with(const std::string& path, const std::string& bytes) {
    const std::string before = text(path);
    write_text(files_, path, bytes);
    const std::string error = error_of_verify();
    write_text(files_, path, before);
    return error;
  }
  std::string error_with_flip(const std::string& path, size_t bit) {
    std::string bytes = text(path);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    return error_with(path, bytes);
  }
  // The error after one text in the manifest is replaced and its checksum is recomputed, as an attacker could do.
  std::string error_with_manifest(const std::string& from, const std::string& to) {
    std::string bytes = text(manifest());
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    const size_t line = bytes.find('\n') + 1;
    bytes = fmt::format("{{\"manifest_xxh3\": \"{:016x}\",\n", XXH3_64bits(bytes.data() + line, bytes.size() - line)) +
            bytes.substr(line);
    return error_with(manifest(), bytes);
  }

  MemoryFileSystem files_;
};

TEST_F(Corruption, EveryBitOfAHeaderAndOfTheManifestIsGuarded) {
  ASSERT_EQ(error_of_verify(), "");
  const auto header_bits =
      static_cast<size_t>(LoadedStep(files_, directory_of(10)).manifest().files.begin()->second.header_bytes) * 8;
  for (size_t bit = 0; bit < header_bits; ++bit)
    ASSERT_THAT(error_with_flip(shard(0), bit), HasSubstr(shard(0) + ": header: crc32c ")) << "bit " << bit;
  for (size_t bit = 0; bit < text(manifest()).size() * 8; ++bit)
    ASSERT_THAT(error_with_flip(manifest(), bit), HasSubstr(manifest() + ": the checksum in its first line")) << "bit " << bit;
}

TEST_F(Corruption, RandomBitsOfTheBodyAreFoundNamingFileTensorAndBlock) {
  std::mt19937_64 random(1);
  const size_t header = static_cast<size_t>(LoadedStep(files_, directory_of(10)).manifest().files.begin()->second.header_bytes);
  const size_t size = text(shard(0)).size();
  for (int trial = 0; trial < 3000; ++trial) {
    const size_t bit = header * 8 + random() % ((size - header) * 8);
    ASSERT_THAT(error_with_flip(shard(0), bit),
                AllOf(HasSubstr(shard(0) + ": block 0 (tensor \""), HasSubstr("): crc32c "), HasSubstr(", expected ")));
  }
}

TEST_F(Corruption, AReaderOfASliceFindsADamagedBlockItTouches) {
  std::string bytes = text(shard(0));
  bytes[bytes.size() - 1] = static_cast<char>(bytes.back() ^ 1);  // the last data of rank 0: BF16 is stored after F32
  write_text(files_, shard(0), bytes);
  const LoadedStep step(files_, directory_of(10));
  std::array<uint16_t, 1> one{};
  const Piece weight = whole_box_piece("weight", {64, 96}, 5, {one.data(), DType::BFloat16, {1}});
  EXPECT_THROW(step.read({&weight, 1}), CheckpointError);
  std::array<float, 50> bias{};
  const Piece whole_bias = whole_box_piece("bias", {50}, 0, {bias.data(), DType::Float32, {50}});
  EXPECT_NO_THROW(step.read({&whole_bias, 1}));
}

TEST_F(Corruption, EveryTruncationIsFoundBeforeAnyTensorIsRead) {
  const std::string bytes = text(shard(1));
  for (size_t length = 0; length < bytes.size(); length += length < 600 ? 1 : 97)
    ASSERT_EQ(error_with(shard(1), bytes.substr(0, length)),
              fmt::format("{}: the file has {} bytes, the manifest says {}", shard(1), length, bytes.size()));
  EXPECT_THAT(error_with(shard(1), bytes + "x"), HasSubstr("the manifest says"));
  const std::string json = text(manifest());
  for (size_t length = 0; length < json.size(); length += 7)
    ASSERT_THAT(error_with(manifest(), json.substr(0, length)), HasSubstr(manifest()));
}

TEST_F(Corruption, AMissingFileIsNamed) {
  files_.remove(shard(1));
  EXPECT_EQ(error_of_verify(), "open " + shard(1) + ": No such file or directory");
  files_.remove(manifest());
  EXPECT_THAT(error_of_verify(), HasSubstr("open " + manifest()));
}

TEST_F(Corruption, FilesOfOtherRanksStepsAndRunsAreRecognized) {
  save(20, "run-1");
  save(10, "run-2", "/other");
  EXPECT_THAT(error_with(shard(1), text(shard(0))), HasSubstr("it is the file of rank 0 of step 10 of run run-1"));
  EXPECT_THAT(error_with(shard(1), text(shard(1, 20))), HasSubstr("it is the file of rank 1 of step 20 of run run-1"));
  EXPECT_THAT(error_with(shard(1), text("/other/step-00000010/rank-00001.safetensors")),
              HasSubstr("it is the file of rank 1 of step 10 of run run-2"));
  EXPECT_THAT(error_with(manifest(), text(directory_of(20) + "/manifest.json")),
              HasSubstr("it is the manifest of step 20, but the directory is named step 10"));
}

TEST_F(Corruption, PathsThatLeaveTheDirectoryAreRefused) {
  for (const std::string name : {"../rank-00000.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\u0000b", "a b"})
    EXPECT_THAT(error_with_manifest("\"rank-00000.safetensors\": {", fmt::format("\"{}\": {{", name)),
                HasSubstr("is not accepted"))
        << name;
}

TEST_F(Corruption, HostileNumbersAreRefusedBeforeMemoryIsTaken) {
  const std::string huge = std::to_string(int64_t{1} << 61);
  EXPECT_THAT(error_with_manifest("\"header_bytes\": ", "\"header_bytes\": " + huge), HasSubstr("not a count"));
  EXPECT_THAT(error_with_manifest("\"count\": 25", "\"count\": " + huge), HasSubstr("are not inside a box of 50"));
  EXPECT_THAT(error_with_manifest("\"first\": 25", "\"first\": 26"), HasSubstr("elements 26 + 25 are not inside a box of 50"));
  EXPECT_THAT(error_with_manifest("\"first\": 25", "\"first\": 24"), HasSubstr("tensor \"bias\": elements are stored twice"));
  EXPECT_THAT(error_with_manifest("\"first\": 25", "\"first\": -1"), HasSubstr("-1 is not a count"));
  EXPECT_THAT(error_with_manifest("\"version\": 1", "\"version\": 1.5"), HasSubstr("1.5 is not a count"));
  EXPECT_THAT(error_with_manifest("\"tensor\": \"bias\"", "\"tensor\": \"bios\""),
              HasSubstr("the tensor is not in \"tensors\""));
  EXPECT_THAT(error_with_manifest("\"entry\": \"bias#0\"", "\"entry\": \"b\\nias\""),
              HasSubstr("tensor \"bias#0\" is not in the manifest"));
  EXPECT_THAT(error_with_manifest("\"run_id\"", "\"step\""), HasSubstr("key \"step\" appears twice"));
}

// These states have the right checksum, but no run can be in them.
TEST_F(Corruption, FieldsOutOfRangeAreRefusedNamingFileFieldValueAndWhatIsAccepted) {
  const std::string escaped = R"("state": "{\"steps\":10,\"updates\":10)";
  const auto state = [&](const std::string& to) { return error_with_manifest(escaped, "\"state\": \"" + to); };
  EXPECT_EQ(state(R"({\"steps\":10,\"updates\":-1)"),
            manifest() + ": state: updates: -1 is not accepted; it must be a whole number from 0 to 10");
  EXPECT_EQ(
      state(R"({\"steps\":9223372036854775808,\"updates\":10)"),
      manifest() + ": state: steps: 9223372036854775808 is not accepted; it must be a whole number from 0 to 1000000000000");
  EXPECT_EQ(state(R"({\"steps\":11,\"updates\":10)"),
            manifest() + ": it is the manifest of step 10, but its state is that of step 11");
  EXPECT_EQ(error_with_manifest("\"step\": 10", "\"step\": 11"),
            manifest() + ": it is the manifest of step 11, but its state is that of step 10");
  EXPECT_EQ(error_with_manifest("\"step\": 10", "\"step\": 1000000000001"),
            manifest() + ": step: 1000000000001 is not accepted; it must be a whole number from 0 to 1000000000000");
  EXPECT_EQ(error_with_manifest("\"ranks\": 2", "\"ranks\": 0"),
            manifest() + ": ranks: 0 is not accepted; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(error_with_manifest("\"run_id\": \"run-1\"", "\"run_id\": \"../x\""),
            manifest() + ": run_id: \"../x\" is not accepted; it must be of the form [A-Za-z0-9._-]{1,64}");
  const std::string lengthy(1000, 'x'), cut = std::string(200, 'x') + "...";
  EXPECT_EQ(error_with_manifest("\"run_id\": \"run-1\"", "\"run_id\": \"" + lengthy + "\""),
            manifest() + ": run_id: \"" + cut + "\" is not accepted; it must be of the form [A-Za-z0-9._-]{1,64}");
  EXPECT_EQ(error_with_manifest("\"tensors\": {", "\"tensors\": {\"" + lengthy + "\": {},"),
            manifest() + ": tensor \"" + cut + "\": \"dtype\" is missing");
  EXPECT_EQ(error_with_manifest("\"tensor\": \"bias\"", "\"tensor\": \"" + lengthy + "\""),
            manifest() + ": a piece of tensor \"" + cut + "\": the tensor is not in \"tensors\"");
  EXPECT_EQ(error_with_manifest("\"config\": \"\"", "\"config\": \"[]\""),
            manifest() + ": config: \"[]\" is not accepted; it must be a JSON object");
  EXPECT_EQ(error_with_manifest("\"config\": \"\"", "\"config\": {}"), manifest() + ": {} is not a string");
}

TEST_F(Corruption, AnotherFormatVersionIsAVersionSkew) {
  std::string bytes = text(manifest());
  bytes.replace(bytes.find("\"version\": 1"), 12, "\"version\": 2");
  const size_t line = bytes.find('\n') + 1;
  const std::string rest = bytes.substr(line);
  write_text(files_, manifest(),
             fmt::format("{{\"manifest_xxh3\": \"{:016x}\",\n", XXH3_64bits(rest.data(), rest.size())) + rest);
  try {
    LoadedStep(files_, directory_of(10));
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::VersionSkew);
    EXPECT_THAT(error.what(), HasSubstr("format version 2, this program reads 1"));
  }
}

TEST_F(Corruption, WantingAnotherShapeTypeOrNameNamesBoth) {
  const LoadedStep step(files_, directory_of(10));
  std::vector<float> memory(64 * 97);
  const auto error_of = [&](const Piece& piece) -> std::string {
    try {
      step.read({&piece, 1});
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::Usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(whole_box_piece("bias", {51}, 0, {memory.data(), DType::Float32, {51}})),
            "tensor \"bias\" of " + directory_of(10) + " is stored as float32 [50], but float32 [51] is needed");
  EXPECT_THAT(error_of(whole_box_piece("weight", {64, 96}, 0, {memory.data(), DType::Float32, {64 * 96}})),
              HasSubstr(" is stored as bfloat16 [64, 96], but float32 [64, 96] is needed"));
  EXPECT_THAT(error_of(whole_box_piece("wait", {1}, 0, {memory.data(), DType::Float32, {1}})),
              HasSubstr("tensor \"wait\" is not in this checkpoint"));
}

}  // namespace
}  // namespace trivet::checkpoint
