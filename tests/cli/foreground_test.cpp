#include "cli/foreground.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "core/descriptor.h"
#include "core/error.h"
#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

int run_sh(const std::string& script, int output = -1) { return run_in_foreground("/bin/sh", {"sh", "-c", script}, output); }

TEST(Foreground, ReturnsTheExitCodeOrTheSignalThatEndedTheProgram) {
  EXPECT_EQ(run_sh("exit 0"), 0);
  EXPECT_EQ(run_sh("exit 3"), 3);
  EXPECT_EQ(run_sh("kill -KILL $$"), 128 + SIGKILL);
}

// Ctrl-C goes to both. The other program decides what happens; this one reports it.
TEST(Foreground, LeavesInterruptsToTheOtherProgram) {
  EXPECT_EQ(run_sh("kill -INT $PPID; kill -QUIT $PPID; exit 3"), 3);
  EXPECT_EQ(run_sh("kill -INT $$; exit 3"), 128 + SIGINT);
  EXPECT_EXIT(
      {
        run_sh("exit 0");
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

// As in a script that is started with nohup or with &.
TEST(Foreground, KeepsInterruptsIgnoredThatWereIgnoredBefore) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        std::_Exit(run_sh("kill -INT $$; exit 3"));
      },
      testing::ExitedWithCode(3), "");
}

TEST(Foreground, WritesIntoAFile) {
  const test::Folder folder;
  {
    const Descriptor file(::open((folder.path() + "/said").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(run_sh("echo words", file.number()), 0);
  }
  EXPECT_EQ(folder.read("said"), "words\n");
}

TEST(Foreground, SaysWhichProgramCannotBeStarted) {
  try {
    run_in_foreground("/no/such/program", {"program"});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/no/such/program cannot be started: No such file or directory");
  }
}

}  // namespace
}  // namespace trivet::cli
