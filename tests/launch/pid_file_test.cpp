// --save_pid: where the file is, who can read it, and that no other user can choose which file is written.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;

class PidFile : public ::testing::Test {
 protected:
  LaunchedProcess start(const LaunchedProcess::Variables& variables = {}) const {
    return LaunchedProcess(
        {kTrivet, "launch", "--num_gpus", "2", "--save_pid", "/bin/sh", "-c", "echo $$ is rank $RANK; sleep 1000"}, variables);
  }
  std::string own(const std::string& folder) const { return folder + "/trivet-" + std::to_string(::geteuid()); }
  // The file that the launcher names once both ranks run.
  static std::string file_of(const LaunchedProcess& job) {
    if (!job.prints("is rank", 2)) ADD_FAILURE() << job.output();
    const std::string line = job.lines_with("pids are in ").at(0);
    return line.substr(line.find("pids are in ") + 12);
  }
  void expect_refusal(LaunchedProcess& job, const std::string& text) {
    EXPECT_EQ(job.wait(), 2) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("--save_pid: " + text));
  }
  static unsigned mode(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(PidFile, HasALineForEachRankWhileTheJobRuns) {
  LaunchedProcess job = start();
  const std::string path = file_of(job);
  EXPECT_EQ(path, own(job.folder() / "tmp") + "/trivet-launch-" + std::to_string(job.pid()) + ".pids");
  EXPECT_EQ(mode(path), 0600u);
  EXPECT_EQ(mode(own(job.folder() / "tmp")), 0700u);
  std::ifstream file(path);
  int rank = -1, pid = 0;
  for (int expected = 0; expected < 2; ++expected) {
    ASSERT_TRUE(file >> rank >> pid);
    EXPECT_EQ(rank, expected);
    EXPECT_EQ(job.lines_with(std::to_string(pid) + " is rank " + std::to_string(rank)).size(), 1u) << job.output();
  }
  ::kill(job.pid(), SIGTERM);
  job.wait();
  EXPECT_FALSE(job.has_temporary_files());
}

TEST_F(PidFile, ThatCannotBeWrittenWholeIsReportedOnceAndTheJobGoesOn) {
  // The limit is 1024 bytes, which is enough for the job's secret, but not for the lines of 150 ranks.
  LaunchedProcess job({"/bin/bash", "-c", "ulimit -f 1; exec \"$@\"", "bash", kTrivet, "launch", "--num_gpus", "150",
                       "--save_pid", "/bin/true"});
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(job.lines_with(".pids: File too large; the pids of ranks from 1").size(), 1u) << job.output();
  EXPECT_EQ(job.lines_with("File too large").size(), 1u) << job.output();
  EXPECT_EQ(job.lines_with(" on are missing from it, and the job continues").size(), 1u) << job.output();
}

TEST_F(PidFile, IsRemovedIfTheLauncherIsKilled) {
  LaunchedProcess job = start();
  file_of(job);
  ::kill(job.pid(), SIGKILL);
  job.wait();
  EXPECT_TRUE(becomes_true([&] { return !job.has_temporary_files(); }));
}

TEST_F(PidFile, IsInTheFolderOfTheUsersSession) {
  fs::permissions(folder_, fs::perms::owner_all);
  LaunchedProcess job = start({{"XDG_RUNTIME_DIR", folder_}});
  EXPECT_TRUE(file_of(job).starts_with(folder_.string() + "/trivet-launch-"));
  ::kill(job.pid(), SIGTERM);
  job.wait();
  EXPECT_TRUE(fs::exists(folder_)) << "it is not the launcher's to remove";
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(PidFile, IsNotWrittenIntoAFolderThatOthersMayUse) {
  ::chmod(folder_.c_str(), 0755);
  LaunchedProcess job = start({{"XDG_RUNTIME_DIR", folder_}});
  expect_refusal(job, folder_.string() + ": other users may access it (mode 755)");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(PidFile, IsNotWrittenThroughAFolderThatIsALink) {
  fs::create_directory(folder_ / "elsewhere");
  fs::permissions(folder_ / "elsewhere", fs::perms::owner_all);
  fs::create_symlink(folder_ / "elsewhere", own(folder_));
  LaunchedProcess job = start({{"TMPDIR", folder_}});
  expect_refusal(job, own(folder_) + ": is not a folder");
  EXPECT_TRUE(fs::is_empty(folder_ / "elsewhere"));
}

TEST_F(PidFile, IsNotWrittenThroughAFileThatIsALink) {
  fs::permissions(folder_, fs::perms::owner_all);
  std::ofstream(folder_ / "precious") << "mine\n";
  // The name holds the launcher's pid, which a shell that becomes the launcher knows beforehand.
  LaunchedProcess job({"/bin/sh", "-c", "ln -s precious \"$XDG_RUNTIME_DIR/trivet-launch-$$.pids\"; exec \"$@\"", "sh", kTrivet,
                       "launch", "--num_gpus", "1", "--save_pid", "/bin/true"},
                      {{"XDG_RUNTIME_DIR", folder_}});
  const std::string name = folder_.string() + "/trivet-launch-" + std::to_string(job.pid()) + ".pids";
  expect_refusal(job, name + ": already exists");
  std::ifstream file(folder_ / "precious");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "mine");
  EXPECT_TRUE(fs::is_symlink(name)) << "it existed before";
}

TEST_F(PidFile, IsNotWrittenIntoAFolderOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  fs::create_directory(own(folder_));
  fs::permissions(own(folder_), fs::perms::owner_all);
  ASSERT_EQ(::chown(own(folder_).c_str(), 65534, 65534), 0);
  LaunchedProcess job = start({{"TMPDIR", folder_}});
  expect_refusal(job, own(folder_) + ": belongs to user 65534, not to you");
}

}  // namespace
}  // namespace trivet::test
