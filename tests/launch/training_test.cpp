// Trainers that run in a shell under the launcher end with their launcher.
#include <gmock/gmock.h>

#include "cli/launch/processes.h"
#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;

class LaunchedTraining : public ::testing::Test {
 protected:
  LaunchedTraining() {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i * i % 97 << " of a text\n";
    std::ofstream(folder_ / "config.json") << R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 16, "vocabulary": "characters"},
      "data": {"train": ")" + (folder_ / "text.txt").string() +
                                                  R"("},
      "training": {"steps": 1000000},
      "train_batch_size": 2, "train_micro_batch_size_per_gpu": 1,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "checkpoint": {"directory": ")" + (folder_ / "checkpoints").string() +
                                                  R"(", "every_steps": 2}
    })";
  }

  LaunchedProcess start(int ranks, const std::string& script) const {
    return LaunchedProcess({kTrivet, "launch", "--num_gpus", std::to_string(ranks), "/bin/bash", "-c", script},
                           {{kMark, folder_}, {"TRAIN", kTrivet + " train " + (folder_ / "config.json").string()}});
  }
  bool has_saved() const {
    return becomes_true([&] { return fs::exists(folder_ / "checkpoints") && fs::exists(folder_ / "checkpoints" / "latest"); });
  }
  bool nothing_is_left() const {
    return becomes_true([&] { return processes_with(kMark, folder_).empty(); });
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(LaunchedTraining, UnderAShellEndsWithAKilledLauncher) {
  for (const char* wrapper : {"$TRAIN; echo done", "setsid $TRAIN; echo done"}) {
    LaunchedProcess job = start(2, wrapper);
    EXPECT_TRUE(has_saved()) << job.output();
    ::kill(job.pid(), SIGKILL);
    job.wait();
    EXPECT_TRUE(nothing_is_left()) << job.output();
    fs::remove_all(folder_ / "checkpoints");
  }
}

TEST_F(LaunchedTraining, EndsItselfWhenNobodyElseCanEndIt) {
  LaunchedProcess job = start(1, "setsid $TRAIN --ranks 2; echo done");  // as threads: they watch the launcher, too
  EXPECT_TRUE(has_saved()) << job.output();
  const int guardian = job.guardian();
  // The launcher is stopped, and not the guardian, which the system would continue when its group lost the launcher.
  ::kill(job.pid(), SIGSTOP);
  ASSERT_TRUE(becomes_true([&] { return cli::is_stopped(job.pid()); }));
  ::kill(guardian, SIGKILL);
  ::kill(job.pid(), SIGKILL);
  EXPECT_TRUE(job.prints("the launcher (trivet launch) has died and can no longer end this rank: it ends itself", 1))
      << job.output();
  EXPECT_TRUE(nothing_is_left()) << job.output();
}

TEST_F(LaunchedTraining, SaysWhenAProgramInBetweenHasClosedTheLink) {
  LaunchedProcess job = start(1, "eval \"exec $TRIVET_LAUNCHER_FD>&-\"; $TRAIN --set training.steps=1");
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(),
              HasSubstr(" is not the socket of trivet launch, perhaps because a program in between closed it: this "
                        "rank will not notice if the launcher is killed"));
}

}  // namespace
}  // namespace trivet::test
