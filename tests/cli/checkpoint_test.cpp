// Runs the program `trivet checkpoint ...` itself.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/temporary_folder.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProgram = TRIVET_BINARY_DIR "/trivet";

struct Outcome {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

Outcome run(const std::string& arguments) {
  FILE* pipe = ::popen((std::string(kProgram) + " checkpoint " + arguments + " 2>&1").c_str(), "r");
  if (!pipe) return {};
  Outcome outcome;
  std::array<char, 4096> buffer;
  for (size_t count; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), count);
  outcome.exit_code = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

class CheckpointCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(kProgram)) << kProgram << " is not built";
    for (int64_t step : {10, 20}) save("a", step, step);
  }
  // Saves the values of step `values_of` as `step`.
  void save(const std::string& run_id, int64_t step, int64_t values_of) {
    CheckpointStore store(real_file_system(), {.directory = path(run_id), .run_id = run_id});
    const RankPieces mine = make_pieces({}, 0, values_of, true);
    store.save({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = "{}"}, {});
  }
  std::string path(const std::string& name) const { return directory_.at(name); }
  void damage(const std::string& run_id, int64_t step) {
    std::fstream file(path(run_id) + "/" + step_directory_name(step) + "/rank-00000.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
  }

  test::TemporaryFolder directory_;
};

TEST_F(CheckpointCommand, ListShowsStepsAndWhetherTheyAreComplete) {
  const Outcome list = run("list " + path("a"));
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.output, AllOf(HasSubstr("step-00000010"), HasSubstr("step-00000020"), HasSubstr("1 ranks"),
                                 HasSubstr("complete (data not read)"),
                                 HasSubstr("; trivet checkpoint verify " + path("a") + " reads every byte")));
  EXPECT_THAT(list.output, Not(HasSubstr("valid")));
}

TEST_F(CheckpointCommand, ListShowsTheSizeWithItsUnit) {
  const std::string json = run("list --json " + path("a")).output, key = "\"bytes\": ";
  const int64_t bytes = std::stoll(json.substr(json.find(key) + key.size()));
  ASSERT_GT(bytes, 1 << 20);
  ASSERT_LT(bytes, 1 << 30);
  EXPECT_THAT(run("list " + path("a")).output, HasSubstr(fmt::format(" {:.1f} MiB ", static_cast<double>(bytes) / (1 << 20))));
}

TEST_F(CheckpointCommand, ListShowsAllStepsAndExitsWith15WhenAManifestIsDamaged) {
  std::filesystem::resize_file(path("a") + "/step-00000010/manifest.json", 100);
  const Outcome list = run("list " + path("a"));
  EXPECT_EQ(list.exit_code, 15);
  EXPECT_THAT(list.output, AllOf(HasSubstr("step-00000010     damaged: "), HasSubstr("complete (data not read)"),
                                 HasSubstr("1 of 2 checkpoints are damaged")));
  std::filesystem::remove(path("a") + "/step-00000010/manifest.json");
  EXPECT_THAT(run("list " + path("a")).output, HasSubstr("step-00000010     damaged: open "));
  const Outcome json = run("list --json " + path("a"));
  EXPECT_EQ(json.exit_code, 15);
  EXPECT_THAT(json.output,
              AllOf(HasSubstr("\"step\": 20"), HasSubstr("\"status\": \"complete\""), HasSubstr("\"status\": \"damaged\"")));
}

TEST_F(CheckpointCommand, ListAndShowDoNotVouchForDataTheyHaveNotRead) {
  damage("a", 20);
  for (const char* command : {"list ", "show "}) {
    const Outcome outcome = run(command + path("a"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("complete (data not read)"), HasSubstr(" reads every byte\n")));
    EXPECT_THAT(run(command + ("--json " + path("a"))).output,
                AllOf(HasSubstr("\"status\": \"complete\""), Not(HasSubstr("valid"))));
  }
  EXPECT_THAT(run("verify --json " + path("a")).output,
              AllOf(HasSubstr("\"status\": \"verified\""), HasSubstr("\"status\": \"damaged\"")));
}

// The directory of one of two hosts, with the file of its own rank.
TEST_F(CheckpointCommand, AStepThatIsSpreadOverHostsIsPartial) {
  checkpoint::Manifest manifest = LoadedStep(real_file_system(), path("a") + "/step-00000020").manifest();
  manifest.origin = "a";
  manifest.start = 1;
  manifest.files["rank-00001.safetensors"] = {.bytes = 100, .header_bytes = 8};
  manifest.hosts = {{"node1", {"rank-00000.safetensors"}}, {"node2", {"rank-00001.safetensors"}}};
  std::ofstream(path("a") + "/step-00000020/manifest.json") << to_text(manifest);
  const std::string there = "1 of 2 files are here; rank-00001.safetensors is on node2";
  const Outcome list = run("list " + path("a"));
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.output, HasSubstr("partial (data not read): " + there));
  EXPECT_THAT(run("show " + path("a")).output, HasSubstr("partial (data not read): " + there));
  EXPECT_THAT(run("verify " + path("a") + "/step-00000020").output, HasSubstr("partly verified: " + there));
  EXPECT_THAT(run("list --json " + path("a")).output,
              AllOf(HasSubstr("\"status\": \"partial\""), HasSubstr("\"rank-00001.safetensors\": \"node2\"")));
  std::filesystem::resize_file(path("a") + "/step-00000020/rank-00000.safetensors", 50);
  EXPECT_EQ(run("verify " + path("a")).exit_code, 15) << "what is there must be valid";
}

TEST_F(CheckpointCommand, ShowTellsWhichFileHoldsWhat) {
  for (const std::string& target : {path("a"), path("a") + "/step-00000020"})
    EXPECT_THAT(run("show " + target).output,
                AllOf(HasSubstr("step-00000020"), HasSubstr("blocks.0.cube"), HasSubstr("[3, 12, 5]"),
                      HasSubstr("rank-00000.safetensors  box [0, 0, 0] + [3, 12, 5], elements 0 + 180")));
  EXPECT_THAT(run("show --json " + path("a")).output,
              AllOf(HasSubstr("\"dtype\": \"bfloat16\""), HasSubstr("\"state\": \"{\\\"steps")));
}

TEST_F(CheckpointCommand, VerifyFindsAFlippedByteAndExitsWith15) {
  EXPECT_EQ(run("verify " + path("a")).exit_code, 0);
  damage("a", 20);
  const Outcome verify = run("verify " + path("a"));
  EXPECT_EQ(verify.exit_code, 15);
  EXPECT_THAT(verify.output, AllOf(HasSubstr("rank-00000.safetensors: block "), HasSubstr("1 of 2 checkpoints are damaged")));
  EXPECT_EQ(run("verify " + path("a") + "/step-00000010").exit_code, 0);
}

TEST_F(CheckpointCommand, DiffComparesTensorByTensor) {
  save("b", 30, 10);
  EXPECT_THAT(run("diff " + path("a") + "/step-00000010 " + path("b")).output, HasSubstr("7 of 7 tensors have equal bits"));
  const Outcome diff = run("diff " + path("a") + " " + path("b"));
  EXPECT_EQ(diff.exit_code, 0);
  EXPECT_THAT(diff.output, AllOf(HasSubstr("elements differ, by at most"), Not(HasSubstr("7 of 7"))));
  EXPECT_THAT(run("diff --json " + path("a") + " " + path("b")).output, HasSubstr("\"equal\": false"));
}

TEST_F(CheckpointCommand, APathThatIsNotThereIsAUsageError) {
  const Outcome list = run("list " + path("nothing"));
  EXPECT_EQ(list.exit_code, 2);
  EXPECT_THAT(list.output, HasSubstr("no such directory"));
  std::filesystem::create_directory(path("empty"));
  for (const char* command : {"list ", "list --json ", "verify ", "show "}) {
    const Outcome empty = run(command + path("empty"));
    EXPECT_EQ(empty.exit_code, 2) << command;
    EXPECT_THAT(empty.output, HasSubstr("there is no checkpoint here (no step-* directory)")) << command;
  }
}

}  // namespace
}  // namespace trivet::checkpoint
