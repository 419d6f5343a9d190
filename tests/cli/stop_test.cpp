// `trivet train` and signals: the running step is finished and saved, then the run ends with 128 + signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/stop_signals.h"
#include "tests/cli/running_program.h"

namespace trivet::test {
namespace {

const std::string kTrivet = TRIVET_BINARY_DIR "/trivet";

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Stop : public testing::Test {
 protected:
  Stop() {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    // There are more steps than a test waits for, and each is printed.
    folder.write("config.json", R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "characters", "dropout": 0.1},
      "data": {"train": "text.txt"}, "training": {"steps": 10000000, "seed": 3}, "steps_per_print": 1,
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "reproducible": "layout",
      "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
      "checkpoint": {"directory": "checkpoints"}
    })");
  }
  // One step takes many seconds.
  const std::vector<std::string> slow_step{"--set", "model.hidden_size=256",           "--set", "model.layers=4",
                                           "--set", "model.sequence_length=64",        "--set", "train_batch_size=512",
                                           "--set", "train_micro_batch_size_per_gpu=4"};

  static std::vector<std::string> train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"train", "config.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // The step after which the run says that it was stopped; 0 if it does not say so.
  int64_t stopped_after() const {
    const std::string text = folder.read("out"), start = " after step ";
    const size_t at = text.find(start, text.find("stopped "));
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + start.size()));
  }
  void expect_stopped_and_resumable(const std::string& how) {
    const int64_t step = stopped_after();
    ASSERT_GT(step, 0) << folder.read("out") << folder.read("err");
    EXPECT_THAT(folder.read("out"), HasSubstr("step " + std::to_string(step) +
                                              " is saved; to continue from it, run the same "
                                              "command with --resume"));
    const std::string steps = " --set training.steps=" + std::to_string(step + 2);
    const Output resumed = folder.run("train config.json --resume" + steps);
    EXPECT_EQ(resumed.code, 0) << resumed.errors;
    EXPECT_THAT(resumed.text, HasSubstr("resumed after step "));
    ASSERT_EQ(folder.run("train config.json --set checkpoint.directory=whole" + steps).code, 0);
    EXPECT_THAT(folder.run("checkpoint diff checkpoints whole --json").text, HasSubstr("\"equal\": true")) << how;
  }

  Folder folder;
};

TEST_F(Stop, SigtermFinishesTheStepAndSavesIt) {
  RunningProgram program(folder, train());
  ASSERT_TRUE(program.wait_for("out", "\n       3 ")) << folder.read("err");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_THAT(folder.read("err"), HasSubstr("trivet: rank 0: SIGTERM: the running step will be finished within 25 s "
                                            "(checkpoint.stop_seconds) and saved to checkpoints; then the run ends; a second "
                                            "signal ends it at once"));
  EXPECT_THAT(folder.read("out"), HasSubstr("stopped by signal 15 after step "));
  expect_stopped_and_resumable("one rank");
}

TEST_F(Stop, SigintStopsRanksThatAreThreads) {
  RunningProgram program(folder, train({"--ranks", "3"}));
  ASSERT_TRUE(program.wait_for("out", "\n       2 ")) << folder.read("err");
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  expect_stopped_and_resumable("threads");
}

TEST_F(Stop, ALaunchedJobSavesOneStepAndEndsWithTheSignalsCode) {
  RunningProgram program(folder, {"launch", "--num_gpus", "3", kTrivet, "train", "config.json"});
  ASSERT_TRUE(program.wait_for("out", "       2 ")) << folder.read("err");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  expect_stopped_and_resumable("processes");
}

// The other ranks learn of the signal from the rank that got it.
TEST_F(Stop, ASignalToOneRankStopsAll) {
  folder.write("rank", "[ \"$RANK\" = 1 ] && echo $$ > pid\nexec \"$@\"\n");
  RunningProgram program(folder, {"launch", "--num_gpus", "2", "sh", "rank", kTrivet, "train", "config.json"});
  ASSERT_TRUE(program.wait_for("out", "       2 ")) << folder.read("err");
  ::kill(static_cast<pid_t>(std::stol(folder.read("pid"))), SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  expect_stopped_and_resumable("one of two processes");
}

TEST_F(Stop, ASecondSignalEndsTheRunAtOnce) {
  RunningProgram program(folder, train(slow_step));
  ASSERT_TRUE(program.wait_for("out", "tok/s")) << folder.read("err");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the first step has begun
  program.send(SIGTERM);
  ASSERT_TRUE(program.wait_for("err", "a second signal ends it at once"));
  program.send(SIGTERM);  // the same one, sent twice, as `timeout` does
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), -SIGINT);
  EXPECT_FALSE(std::filesystem::exists(folder.at("checkpoints/step-00000001")));
}

TEST_F(Stop, AtTheDeadlineTheRunEndsUnsaved) {
  std::vector<std::string> arguments = train(slow_step);
  arguments.insert(arguments.end(), {"--set", "checkpoint.stop_seconds=0.5"});
  RunningProgram program(folder, arguments);
  ASSERT_TRUE(program.wait_for("out", "tok/s")) << folder.read("err");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_THAT(folder.read("err"),
              HasSubstr("error: SIGTERM: the running step, its evaluation or its save took longer than "
                        "checkpoint.stop_seconds 0.5; the run ends now, and complete checkpoints stay as they are"));
  EXPECT_FALSE(std::filesystem::exists(folder.at("checkpoints/step-00000001")));
}

TEST_F(Stop, WithoutADirectoryItSaysThatNothingIsSaved) {
  RunningProgram program(folder, train({"--set", "checkpoint.directory="}));
  ASSERT_TRUE(program.wait_for("out", "\n       2 ")) << folder.read("err");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_THAT(folder.read("err"),
              HasSubstr(" (checkpoint.stop_seconds), but not saved: checkpoint.directory is not set; then"));
  EXPECT_THAT(folder.read("out"), HasSubstr("nothing is saved, because checkpoint.directory is not given"));
}

// There is nothing to save while a rank still looks for the others.
TEST_F(Stop, BeforeTheFirstStepASignalEndsTheProgramAtOnce) {
  RunningProgram program(folder, train(),
                         {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), -SIGTERM);
}

TEST_F(Stop, TheWarningSignalSavesAndTheRunGoesOn) {
  RunningProgram program(folder, train({"--set", "checkpoint.signal=SIGUSR1", "--ranks", "2"}));
  ASSERT_TRUE(program.wait_for("out", "\n       2 ")) << folder.read("err");
  program.send(SIGUSR1);
  ASSERT_TRUE(program.wait_for("err", "SIGUSR1: the running step will be finished and saved"));
  ASSERT_TRUE(program.wait_for("checkpoints/latest", "step-")) << folder.read("err");
  const size_t printed = folder.read("out").size();
  while (folder.read("out").size() < printed + 1000) {  // training continues
    ASSERT_TRUE(program.wait_for("out", "\n       3 "));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_THAT(folder.run("checkpoint verify checkpoints").text, AllOf(HasSubstr("verified"), Not(HasSubstr("damaged"))));
}

// The last step may be one that is skipped. Only weights that are not finite make the end a failure.
TEST_F(Stop, ARunMayBeStoppedWhileStepsAreSkipped) {
  ASSERT_EQ(folder.run("train config.json --set training.steps=3").code, 0);
  RunningProgram program(
      folder, train({"--resume", "--set", "optimizer.params.lr=1e30", "--set", "training.stop_after_skipped=1000000"}));
  ASSERT_TRUE(program.wait_for("out", "\n       7 ")) << folder.read("err");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_THAT(folder.read("err"), HasSubstr(" is not saved: its loss is "));
  EXPECT_THAT(folder.read("out"), HasSubstr("; step 3 is saved; to continue from it, "));
}

TEST_F(Stop, TheWarningSignalMayEndTheRunToo) {
  RunningProgram program(folder,
                         train({"--set", "checkpoint.signal=SIGUSR2", "--set", "checkpoint.signal_action=save_and_stop"}));
  ASSERT_TRUE(program.wait_for("out", "\n       2 ")) << folder.read("err");
  program.send(SIGUSR2);
  EXPECT_EQ(program.wait(), 128 + SIGUSR2);
  expect_stopped_and_resumable("warning");
}

// Runs in a process of its own, whose only other thread waits for signals.
void get_sigterm_and_stop_listening(StopRequest& request) {
  ::kill(::getpid(), SIGTERM);
  while (request.signal() != SIGTERM) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  request.end_listening();
}

// `timeout` sends a signal twice, and a fast rank has left train() before the second comes.
TEST(StopSignals, ADuplicateAfterTheSaveDoesNotEndTheProgram) {
  EXPECT_EXIT(
      {
        StopRequest request;
        request.begin_listening();
        const cli::StopSignals signals(request, {});
        get_sigterm_and_stop_listening(request);
        ::kill(::getpid(), SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST(StopSignals, AtADeadlineAfterTheSaveNothingIsSaidAboutTheSave) {
  EXPECT_EXIT(
      {
        StopRequest request;
        request.begin_listening();
        const cli::StopSignals signals(request, {.deadline = std::chrono::milliseconds(200)});
        get_sigterm_and_stop_listening(request);
        std::this_thread::sleep_for(std::chrono::seconds(20));
        std::_Exit(7);
      },
      testing::ExitedWithCode(143), "error: SIGTERM: the run was not over after checkpoint.stop_seconds 0.2; it ends now");
}

}  // namespace
}  // namespace trivet::test
