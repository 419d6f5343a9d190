#include "report/monitor/jsonl.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/descriptor.h"
#include "core/error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::monitor {
namespace {

using data::file_content;
using test::TemporaryFolder;

StepMetrics metrics_of_step(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 4.5;
  metrics.loss_bits = std::bit_cast<uint32_t>(4.5f);
  metrics.lr = 1e-5;
  metrics.grad_norm = 5.5;
  metrics.samples = step * 8;
  metrics.targets = 768;
  metrics.step_ms = 86.25;
  metrics.targets_per_second = 8904.5;
  metrics.memory_bytes = 17825792;
  return metrics;
}

std::string line_of(int64_t step) { return to_json_line(metrics_of_step(step)); }

// Runs from step `steps_done` + 1 to `last`.
void run(const std::string& path, int64_t steps_done, int64_t last) {
  JsonlMonitor monitor(path);
  monitor.on_start({.steps_done = steps_done, .total_steps = last});
  for (int64_t step = steps_done + 1; step <= last; ++step) {
    monitor.on_step(metrics_of_step(step));
    if (step % 2 == 0) monitor.on_evaluation({.step = step, .loss = 0.5, .loss_bits = 0x3f000000, .targets = 64, .ms = 1.5});
  }
}

TEST(JsonlMonitor, AStepIsOneLineWithTheDocumentedKeys) {
  EXPECT_EQ(line_of(3),
            "{\"step\": 3, \"loss\": 4.5, \"loss_bits\": \"40900000\", \"lr\": 1e-05, \"grad_norm\": 5.5, \"tokens\": 768, "
            "\"step_ms\": 86.25, \"tokens_per_second\": 8904.5, \"memory_bytes\": 17825792}\n");
}

TEST(JsonlMonitor, TokensThatAreReadAndNotLearnedAreCounted) {
  StepMetrics metrics = metrics_of_step(3);
  metrics.tokens_read = 768;
  EXPECT_EQ(to_json_line(metrics), line_of(3));
  metrics.tokens_read = 769;
  EXPECT_NE(to_json_line(metrics).find("\"tokens_read\": 769"), std::string::npos);
}

TEST(JsonlMonitor, WithoutTargetsAMeanIsNull) {
  StepMetrics metrics = metrics_of_step(3);
  metrics.without_targets = metrics.skipped = true;
  metrics.targets = 0;
  metrics.correct = 0;
  metrics.rewards = Rewards{};
  EXPECT_EQ(to_json_line(metrics),
            "{\"step\": 3, \"loss\": null, \"loss_bits\": null, \"lr\": 1e-05, \"grad_norm\": null, \"tokens\": 0, "
            "\"step_ms\": 86.25, \"tokens_per_second\": 8904.5, \"memory_bytes\": 17825792, \"skipped\": true, "
            "\"correct\": 0}\n");
  const TemporaryFolder folder;
  JsonlMonitor(folder.at("m.jsonl")).on_evaluation({.step = 3, .without_targets = true, .rewards = Rewards{}, .ms = 1.5});
  EXPECT_EQ(file_content(folder.at("m.evaluation.jsonl")),
            "{\"step\": 3, \"loss\": null, \"loss_bits\": null, \"tokens\": 0, \"ms\": 1.5}\n");
}

TEST(JsonlMonitor, EachBlockSaysHowItsExpertsShareTokens) {
  StepMetrics metrics = metrics_of_step(3);
  metrics.experts = {{"blocks.0", {30, 10, 20, 20}}, {"blocks.2", {1000, 0, 2, 998}}};
  EXPECT_THAT(to_json_line(metrics), testing::HasSubstr("\"memory_bytes\": 17825792, \"experts\": {\"layers\": [\"blocks.0\", "
                                                        "\"blocks.2\"], \"fullest\": [1.5, 2], \"idle\": [0, 2]}}\n"));
  EXPECT_EQ(metrics.fullest_expert(), 2);
  EXPECT_EQ(metrics.idle_experts(), 2);
}

TEST(JsonlMonitor, ARunOnImagesCountsImages) {
  const TemporaryFolder folder;
  JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.total_steps = 3, .targets = kImages});
  monitor.on_step(metrics_of_step(3));
  monitor.on_evaluation({.step = 3, .loss = 0.5, .loss_bits = 0x3f000000, .targets = 64, .correct = 60, .ms = 1.5});
  EXPECT_EQ(file_content(folder.at("m.jsonl")),
            "{\"step\": 3, \"loss\": 4.5, \"loss_bits\": \"40900000\", \"lr\": 1e-05, \"grad_norm\": 5.5, \"images\": 768, "
            "\"step_ms\": 86.25, \"images_per_second\": 8904.5, \"memory_bytes\": 17825792}\n");
  EXPECT_EQ(file_content(folder.at("m.evaluation.jsonl")),
            "{\"step\": 3, \"loss\": 0.5, \"loss_bits\": \"3f000000\", \"images\": 64, \"ms\": 1.5, \"correct\": 60}\n");
}

TEST(JsonlMonitor, ARunOnPairsHasTheRewardsByTheNamesOfTrl) {
  const TemporaryFolder folder;
  JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.total_steps = 3, .targets = kPairs});
  StepMetrics metrics = metrics_of_step(3);
  metrics.correct = 192;
  metrics.rewards = {0.5, -0.25};
  monitor.on_step(metrics);
  monitor.on_evaluation(
      {.step = 3, .loss = 0.5, .loss_bits = 0x3f000000, .targets = 64, .correct = 60, .rewards = {{-1, -3}}, .ms = 1.5});
  EXPECT_EQ(file_content(folder.at("m.jsonl")),
            "{\"step\": 3, \"loss\": 4.5, \"loss_bits\": \"40900000\", \"lr\": 1e-05, \"grad_norm\": 5.5, \"pairs\": 768, "
            "\"step_ms\": 86.25, \"pairs_per_second\": 8904.5, \"memory_bytes\": 17825792, \"correct\": 192, "
            "\"rewards/accuracies\": 0.25, \"rewards/chosen\": 0.5, \"rewards/rejected\": -0.25, \"rewards/margins\": 0.75}\n");
  EXPECT_EQ(file_content(folder.at("m.evaluation.jsonl")),
            "{\"step\": 3, \"loss\": 0.5, \"loss_bits\": \"3f000000\", \"pairs\": 64, \"ms\": 1.5, \"correct\": 60, "
            "\"rewards/chosen\": -1, \"rewards/rejected\": -3, \"rewards/margins\": 2}\n");
}

TEST(JsonlMonitor, SkippedStepsAndLossScalesShow) {
  StepMetrics metrics = metrics_of_step(3);
  metrics.loss = NAN;
  metrics.loss_bits = 0x7fc00000;
  metrics.loss_scale = 32768;
  metrics.skipped = true;
  const std::string line = to_json_line(metrics);
  EXPECT_NE(line.find("\"loss\": null, \"loss_bits\": \"7fc00000\""), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with(", \"loss_scale\": 32768, \"skipped\": true}\n")) << line;
}

TEST(JsonlMonitor, EvaluationsSayHowManyAnswersWereCorrectIfTheModelChoosesClasses) {
  const TemporaryFolder folder;
  JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.total_steps = 1});
  monitor.on_evaluation({.step = 1, .loss = 0.5, .loss_bits = 0x3f000000, .targets = 64, .correct = 60, .ms = 1.5});
  EXPECT_EQ(file_content(folder.at("m.evaluation.jsonl")),
            "{\"step\": 1, \"loss\": 0.5, \"loss_bits\": \"3f000000\", \"tokens\": 64, \"ms\": 1.5, \"correct\": 60}\n");
}

TEST(JsonlMonitor, LinesAreOnDiskBeforeTheStepReturns) {
  const TemporaryFolder folder;
  JsonlMonitor monitor(folder.at("new/folder/m.jsonl"));
  monitor.on_start({.total_steps = 2});
  monitor.on_step(metrics_of_step(1));
  EXPECT_EQ(file_content(folder.at("new/folder/m.jsonl")), line_of(1));
}

TEST(JsonlMonitor, AResumedRunCutsOffTheStepsItWillDoAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.at("m.jsonl");
  run(path, 0, 5);
  EXPECT_EQ(file_content(path), line_of(1) + line_of(2) + line_of(3) + line_of(4) + line_of(5));
  run(path, 3, 4);
  EXPECT_EQ(file_content(path), line_of(1) + line_of(2) + line_of(3) + line_of(4));
  const std::string evaluation = "\"loss\": 0.5, \"loss_bits\": \"3f000000\", \"tokens\": 64, \"ms\": 1.5}\n";
  EXPECT_EQ(file_content(folder.at("m.evaluation.jsonl")), "{\"step\": 2, " + evaluation + "{\"step\": 4, " + evaluation);
}

TEST(JsonlMonitor, AResumedRunCutsOffHalfALine) {
  const TemporaryFolder folder;
  const std::string path = folder.write("m.jsonl", line_of(1) + line_of(2).substr(0, 30));
  run(path, 2, 3);
  EXPECT_EQ(file_content(path), line_of(1) + line_of(3));
}

TEST(JsonlMonitor, ANewRunBeginsTheFileAnew) {
  const TemporaryFolder folder;
  const std::string path = folder.at("m.jsonl");
  run(path, 0, 3);
  run(path, 0, 1);
  EXPECT_EQ(file_content(path), line_of(1));
  EXPECT_EQ(file_content(folder.at("m.evaluation.jsonl")), "");
}

TEST(OutputFile, ThatCannotBeWrittenAnyMoreIsNamedOnceAndDoesNotEndTheRun) {
  OutputFile file("/dev/full");
  testing::internal::CaptureStderr();
  file.write("one\n");
  file.write("two\n");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("/dev/full: cannot be written: No space left on device; the run continues"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;

  testing::internal::CaptureStderr();
  OutputFile::opened_late("/proc/no/such.jsonl").write("one\n");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("/proc/no/such.jsonl: cannot be written: "));
}

TEST(OutputFile, ThatAnotherRunWritesIsTold) {
  const TemporaryFolder folder;
  const auto said_by_opening = [](const std::string& path) {
    testing::internal::CaptureStderr();
    OutputFile second(path);
    return testing::internal::GetCapturedStderr();
  };
  {
    OutputFile first(folder.at("m.jsonl"));
    EXPECT_THAT(said_by_opening(folder.at("m.jsonl")),
                testing::HasSubstr("m.jsonl: another process writes to this file, too; the lines of both will be mixed"));
    first.write(line_of(1));
    EXPECT_THAT(
        [&] { JsonlMonitor(folder.at("m.jsonl"), std::chrono::milliseconds(1)).on_start({}); },
        testing::ThrowsMessage<Error>(testing::HasSubstr("m.jsonl: another process writes to this file, and would lose")));
    EXPECT_EQ(file_content(folder.at("m.jsonl")), line_of(1)) << "nothing was cut off";
    OutputFile device("/dev/null");
    EXPECT_EQ(said_by_opening("/dev/null"), "");
  }
  EXPECT_EQ(said_by_opening(folder.at("m.jsonl")), "") << "the other run has ended";
}

// In /sys nobody can create a folder; that it is not there is not the reason.
TEST(OutputFile, InAFolderThatCannotBeCreatedSaysWhyNot) {
  try {
    OutputFile file("/sys/trivet/m.csv");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("No such file")));
  }
}

TEST(OutputFile, NeverWaitsForTheReaderOfAFifo) {
  const test::TemporaryFolder folder;
  const std::string path = folder.at("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(
      {
        try {
          OutputFile unread(path);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("nobody reads this FIFO; start its reader first, or name a file"));
          throw;
        }
      },
      Error);
  const auto said_after = [&](const std::string& text, bool reader_leaves) {
    Descriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
    OutputFile file(path);
    file.write("one\n");
    char got[4] = {};
    EXPECT_EQ(::read(reader.number(), got, 4), 4);
    if (reader_leaves) reader.reset();
    testing::internal::CaptureStderr();
    file.write(text);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said_after("two\n", true), testing::HasSubstr("cannot be written: Broken pipe; the run continues"));
  EXPECT_THAT(said_after(std::string(1 << 21, 'x'), false), testing::HasSubstr("the reader of this FIFO does not keep up"));
}

TEST(Metrics, AreKnownByTheirFirstLine) {
  const std::string line = to_json_line({.step = 1});
  for (const std::string& own : {line, line + line, line.substr(0, 5), line.substr(0, 30)}) EXPECT_TRUE(is_metrics(own)) << own;
  for (const std::string other : {"hello", "{}\n", "{\"step\": 1}\n", "[1]", "{\"steps\": 1, \"loss_bits\": 2}\n"})
    EXPECT_FALSE(is_metrics(other)) << other;
}

TEST(OutputFile, LosesAnIncompleteLastLineAndNothingElse) {
  const std::string path = testing::TempDir() + "/incomplete.jsonl", many(200000, 'x');
  const auto cut = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    cut_incomplete_line(path);
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(cut("one\ntwo\n"), "one\ntwo\n");
  EXPECT_EQ(cut("one\ntwo"), "one\n");
  EXPECT_EQ(cut("one"), "");
  EXPECT_EQ(cut("one\n" + many), "one\n");
  EXPECT_EQ(cut(many + "\n" + many), many + "\n");
  std::filesystem::remove(path);
  cut_incomplete_line(path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(JsonlMonitor, AFileThatCannotBeWrittenIsNamed) {
  JsonlMonitor monitor("/proc/no/such.jsonl");
  try {
    monitor.on_start({});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("/proc/no/such.jsonl: cannot be written: ", 0), 0u) << error.what();
    EXPECT_EQ(error.exit_code(), ExitCode::Usage);
  }
}

}  // namespace
}  // namespace trivet::monitor
