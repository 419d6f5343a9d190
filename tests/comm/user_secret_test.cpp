#include "comm/user_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::comm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class UserSecret : public ::testing::Test {
 protected:
  std::string message() {
    try {
      user_secret(directory_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  const test::TemporaryFolder folder_;
  const std::string& root_ = folder_.path();
  const std::string directory_ = root_ + "/trivet";
};

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST_F(UserSecret, IsMadeOnceAndReadByAll) {
  const mode_t before = ::umask(0);  // the modes must not depend on it
  const Secret first = user_secret(directory_);
  ::umask(before);
  EXPECT_EQ(first.key().size(), 32u);
  EXPECT_EQ(user_secret(directory_).key(), first.key());
  EXPECT_EQ(mode_of(directory_), mode_t{0700});
  EXPECT_EQ(mode_of(directory_ + "/secret"), mode_t{0600});
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1) << "a draft was left";
}

TEST_F(UserSecret, IsAnotherOneInAnotherDirectory) {
  EXPECT_NE(user_secret(directory_).key(), user_secret(root_ + "/another").key());
}

TEST_F(UserSecret, IsTheSameForRanksThatComeAtTheSameTime) {
  for (int round = 0; round < 30; ++round) {
    const std::string directory = root_ + "/" + std::to_string(round);
    std::vector<std::string> keys(8);
    std::vector<std::thread> ranks;
    for (auto& key : keys) ranks.emplace_back([&] { key = user_secret(directory).key(); });
    for (auto& rank : ranks) rank.join();
    EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 1u);
    EXPECT_EQ(keys[0].size(), 32u);
  }
}

// `trivet launch --save_pid` uses the same directory and removes it whenever it is empty.
TEST_F(UserSecret, IsMadeAlthoughTheDirectoryIsRemovedMeanwhile) {
  for (int round = 0; round < 1000; ++round) {
    const std::string directory = root_ + "/" + std::to_string(round);
    std::atomic<bool> over{false};
    std::thread launcher([&] {
      for (int removed = 0; !over && removed < 20;) removed += ::rmdir(directory.c_str()) == 0;
    });
    EXPECT_NO_THROW(user_secret(directory));
    over = true;
    launcher.join();
    if (HasFailure()) return;
  }
}

TEST_F(UserSecret, IsNotTakenFromADirectoryThatOthersMayUse) {
  fs::create_directories(directory_);
  ::chmod(directory_.c_str(), 0755);
  EXPECT_THAT(message(), HasSubstr(directory_ + ": has mode 755 instead of 700, so that others may use it"));
  EXPECT_THAT(message(), HasSubstr("remove it, or set TRIVET_SECRET_FILE to the same file on all ranks"));
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(UserSecret, IsNotTakenFromADirectoryOfAnotherUser) {
  fs::create_directories(directory_);
  ::chmod(directory_.c_str(), 0700);
  if (::chown(directory_.c_str(), 12345, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "only root can give files away";
  EXPECT_THAT(message(), HasSubstr("belongs to user 12345, not to " + std::to_string(::geteuid())));
}

TEST_F(UserSecret, IsNotTakenThroughASymbolicLink) {
  fs::create_directories(root_ + "/elsewhere");
  ::chmod((root_ + "/elsewhere").c_str(), 0700);
  fs::create_directory_symlink(root_ + "/elsewhere", directory_);
  EXPECT_THAT(message(), HasSubstr("is not a directory that can be opened"));
  fs::remove(directory_);
  user_secret(directory_);
  fs::rename(directory_ + "/secret", root_ + "/secret");
  fs::create_symlink(root_ + "/secret", directory_ + "/secret");
  EXPECT_THAT(message(), HasSubstr("is a symbolic link"));
}

TEST_F(UserSecret, IsNotTakenFromAFileThatOthersMayRead) {
  user_secret(directory_);
  ::chmod((directory_ + "/secret").c_str(), 0640);
  EXPECT_THAT(message(), HasSubstr("others may read or change it (mode 640"));
}

TEST_F(UserSecret, LiesInTheRuntimeDirectoryOnlyIfThatIsThisUsers) {
  EXPECT_EQ(user_secret_directory(root_), root_ + "/trivet");
  const std::string in_tmp = "/tmp/trivet-" + std::to_string(::geteuid());
  EXPECT_EQ(user_secret_directory(""), in_tmp);
  EXPECT_EQ(user_secret_directory("relative"), in_tmp);
  EXPECT_EQ(user_secret_directory(root_ + "/missing"), in_tmp);
  if (::chown(root_.c_str(), 12345, static_cast<gid_t>(-1)) == 0) {
    EXPECT_EQ(user_secret_directory(root_), in_tmp);
  }
}

}  // namespace
}  // namespace trivet::comm
