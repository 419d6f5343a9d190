// A launcher whose output nobody reads, or nobody reads any more, still obeys signals, sees its ranks end, and loses nothing
// that somebody reads late.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PipedJob : public Pipe, public LaunchedProcess {
 public:
  explicit PipedJob(const std::string& script)
      : LaunchedProcess({kTrivet, "launch", "--num_gpus", "2", "--shutdown-timeout", "5", "/bin/sh", "-c", script}, {},
                        writing.number()) {
    writing.reset();
  }
};

const std::string kEndlessOutput = "echo ready >&2; exec yes a line that nobody reads";

TEST(UnreadOutput, DoesNotHideSignals) {
  PipedJob job(kEndlessOutput);
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  std::this_thread::sleep_for(milliseconds(500));  // so that every pipe and the launcher's own buffer is full
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.output(), HasSubstr("bytes that the ranks printed were dropped: nobody read them"));
}

// Otherwise what a rank prints on a signal would wait for the reader, too, and the rank would be killed for it.
TEST(UnreadOutput, DoesNotKeepARankFromEndingOnASignal) {
  PipedJob job("trap 'seq 100000; exit 0' TERM; echo ready >&2; while :; do echo a line that nobody reads; done");
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  std::this_thread::sleep_for(milliseconds(500));
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.output(), Not(HasSubstr("killing the ranks")));
}

TEST(UnreadOutput, DoesNotHideTheEndOfARank) {
  PipedJob job("test $RANK = 1 && { sleep 0.5; exit 3; }; " + kEndlessOutput);
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.output(), HasSubstr("launch: rank 1 (pid "));
}

TEST(UnreadOutput, OfAGoodJobWaitsForItsReader) {
  PipedJob job("seq -f \"rank $RANK line %.0f of many that are all to arrive\" 60000");
  std::this_thread::sleep_for(milliseconds(700));
  const std::string output = job.read_all();
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 120000);
  for (const char* line : {"\nrank 0 line 60000 of", "\n[rank 1] rank 1 line 60000 of"}) EXPECT_THAT(output, HasSubstr(line));
}

TEST(ClosedOutput, DoesNotEndTheJob) {
  PipedJob job("for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.05; done; echo rank $RANK has finished >&2");
  char first[16];
  ASSERT_GT(::read(job.reading.number(), first, sizeof first), 0);
  job.reading.reset();
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(job.lines_with("has finished").size(), 2u) << job.output();
  EXPECT_EQ(job.lines_with("standard output cannot be written: Broken pipe; the job continues").size(), 1u) << job.output();
}

TEST(FullDisk, DoesNotEndTheJob) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  LaunchedProcess job({kTrivet, "launch", "--num_gpus", "2", "/bin/sh", "-c", "test $RANK = 0 || echo line"}, {},
                      full.number());
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("standard output cannot be written: No space left on device"));
}

// A file system of 100 KiB. The ranks write to their logs themselves.
TEST(FullDisk, OfTheLogsOfRanksIsTold) {
  const TemporaryFolder folder;
  const std::string in_small_folder = "mount -t tmpfs -o size=100k none " + folder.path() +
                                      " && exec \"$0\" launch --num_gpus 1 --enable_each_rank_log " + folder.path() +
                                      " /bin/sh -c \"$1\"";
  const auto run = [&](const std::string& script) {
    LaunchedProcess job(
        {"/usr/bin/env", "unshare", "--map-root-user", "--mount", "/bin/sh", "-c", in_small_folder, kTrivet, script});
    const int code = job.wait();
    return fmt::format("{}: {}", code, job.output());
  };
  const std::string small = run("echo line");
  if (small.find("unshare") != std::string::npos || small.find("mount") != std::string::npos)
    GTEST_SKIP() << "no file system can be mounted here: " << small;
  EXPECT_EQ(small, "0: ");
  EXPECT_THAT(run("seq 30000"),
              HasSubstr(folder.path() + ": its disk is full, so lines of the ranks may be missing from their logs"));
}

// Rank 1's output goes through the launcher, which gets an error. A file that a rank writes itself is the rank's affair.
TEST(LimitOfFileSizes, DoesNotEndTheLauncher) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& script) {
    const Descriptor file(::open(folder.at("limited").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    LaunchedProcess job({"/bin/bash", "-c", "ulimit -f 16; exec \"$@\"", "bash", kTrivet, "launch", "--num_gpus", "2",
                         "/bin/sh", "-c", "test $RANK = 0 || " + script},
                        {{"RANK_FILE", folder.at("of_rank")}}, file.number());
    const int code = job.wait();
    return std::pair(code, job.output());
  };
  const auto [code, output] = run("seq 20000");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("standard output cannot be written: File too large; the job continues"));
  EXPECT_EQ(run("exec head -c 100000 /dev/zero > \"$RANK_FILE\"").first, 128 + SIGXFSZ);
}

TEST(ClosedOutput, DoesNotReplaceTheExitCode) {
  for (const char* flag : {"--quiet", "--save_pid"}) {
    Pipe pipe;
    pipe.reading.reset();
    LaunchedProcess job(
        {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", kTrivet, "launch", flag, "--num_gpus", "1", "/bin/sh", "-c", "exit 3"}, {},
        pipe.writing.number());
    EXPECT_EQ(job.wait(), 3) << flag;
  }
}

// Everything that `trivet launch FLAGS` prints on both streams while rank 1 runs a script.
std::pair<int, std::string> all_output(const std::vector<std::string>& flags, const std::string& script) {
  Pipe pipe;
  std::vector<std::string> words{"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", kTrivet, "launch"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"--num_gpus", "2", "/bin/sh", "-c", "test $RANK = 0 || { " + script + "; }"});
  LaunchedProcess job(words, {}, pipe.writing.number());
  pipe.writing.reset();
  std::string output = pipe.read_all();
  return {job.wait(), output};
}

TEST(Quiet, PrintsWhatRanksPrintAndNothingOfItsOwn) {
  EXPECT_EQ(all_output({"-q", "--save_pid"}, "echo line"), std::pair(0, std::string("[rank 1] line\n")));
  EXPECT_THAT(all_output({"--save_pid"}, "echo line").second, HasSubstr("pids are in "));
  // What it leaves running is killed, which is said otherwise.
  EXPECT_EQ(all_output({"-q"}, "setsid sleep 60 & echo line"), std::pair(0, std::string("[rank 1] line\n")));
}

TEST(Quiet, PrintsOneErrorIfTheJobFails) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"-q"}, {"-q", "--max_restarts", "1"}}) {
    const auto [code, output] = all_output(flags, "exit 3");
    EXPECT_EQ(code, 3);
    EXPECT_THAT(output, testing::StartsWith("trivet: error: launch: rank 1 (pid "));
    EXPECT_EQ(std::ranges::count(output, '\n'), 1) << output;
  }
  EXPECT_GT(std::ranges::count(all_output({"--max_restarts", "1"}, "exit 3").second, '\n'), 1);
}

TEST(Output, OfRankZeroKeepsItsOrderWhereBothStreamsAreOnePipe) {
  Pipe pipe;
  LaunchedProcess job({"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", kTrivet, "launch", "--num_gpus", "1", "/bin/sh", "-c",
                       "for i in 1 2 3 4; do echo out $i; echo err $i >&2; done"},
                      {}, pipe.writing.number());
  pipe.writing.reset();
  EXPECT_EQ(pipe.read_all(), "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nout 4\nerr 4\n");
  EXPECT_EQ(job.wait(), 0);
}

}  // namespace
}  // namespace trivet::test
