#include "cli/launch/rank_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t kOtherUser = 54321;

// A folder in which all users may create files, as in /tmp.
class RankLogs : public testing::Test {
 protected:
  RankLogs() {
    fs::create_directory(logs());
    ::chmod(logs().c_str(), 01777);
    folder_.write("victim", "precious");
  }
  std::string logs() const { return folder_.at("logs"); }
  std::string log() const { return folder_.at("logs/rank_0.out"); }
  std::string victim() const { return folder_.at("victim"); }
  std::string text_of_victim() const { return folder_.read("victim"); }
  std::string text_of_log() const { return folder_.read("logs/rank_0.out"); }
  // "written", or why not.
  std::string print(const std::string& text, bool is_restart) const {
    try {
      const Descriptor file = open_rank_log(logs(), 0, "out", is_restart);
      return ::write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? "written" : "not written";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  mode_t mode_of_log() const {
    struct stat status {};
    ::lstat(log().c_str(), &status);
    return status.st_mode & 07777;
  }

 private:
  const test::TemporaryFolder folder_;
};

TEST_F(RankLogs, AreThisUsersAloneAndContinuedByARestart) {
  EXPECT_EQ(print("first", false), "written");
  EXPECT_EQ(mode_of_log(), 0600u);
  EXPECT_EQ(print(" second", true), "written");
  EXPECT_EQ(text_of_log(), "first second");
  ::chmod(log().c_str(), 0644);
  EXPECT_EQ(print(" third", true), "written");
  EXPECT_EQ(mode_of_log(), 0600u);
  EXPECT_EQ(print("new", false), "written");
  EXPECT_EQ(text_of_log(), "new");
}

// Whoever has the old file open, or a link to it, sees nothing of the new one, and keeps what was in it.
TEST_F(RankLogs, OfANewJobAreNewFiles) {
  fs::create_hard_link(victim(), log());
  ::chmod(log().c_str(), 0666);
  const Descriptor reader(::open(victim().c_str(), O_RDONLY));
  EXPECT_EQ(print("token", false), "written");
  EXPECT_EQ(text_of_victim(), "precious");
  EXPECT_EQ(text_of_log(), "token");
  EXPECT_EQ(mode_of_log(), 0600u);
}

TEST_F(RankLogs, AreNotWrittenIntoWhatSomebodyElseHasPutThere) {
  const std::vector<std::pair<std::string, std::function<void()>>> cases{
      {"is a link", [&] { fs::create_symlink(victim(), log()); }},
      {"is not a regular file", [&] { ::mkfifo(log().c_str(), 0666); }},
      {"is not a regular file", [&] { fs::create_directory(log()); }},
      {"belongs to user 54321",
       [&] {
         std::ofstream(log()) << "open to all";
         ::chmod(log().c_str(), 0666);
         ASSERT_EQ(::chown(log().c_str(), kOtherUser, kOtherUser), 0);
       }},
  };
  for (const auto& [reason, make] : cases) {
    if (reason.starts_with("belongs") && ::geteuid() != 0) continue;  // only root can give files to another user
    fs::remove_all(log());
    make();
    for (const bool is_restart : {false, true})
      EXPECT_THAT(print("token", is_restart), HasSubstr("--enable_each_rank_log " + logs() + ": " + log() + ": " + reason))
          << is_restart;
    EXPECT_EQ(text_of_victim(), "precious");
  }
  fs::remove_all(log());
  fs::create_hard_link(victim(), log());
  EXPECT_THAT(print("token", true), HasSubstr(log() + ": has several names"));
  EXPECT_EQ(text_of_victim(), "precious");
}

TEST_F(RankLogs, AreNotWrittenIntoAFolderOfSomebodyElse) {
  ::chmod(logs().c_str(), 0777);
  EXPECT_THAT(print("token", false),
              HasSubstr(logs() + ": has mode 777, so that others may write to it; name a folder of your own"));
  ::chmod(logs().c_str(), 02775);  // a group shares its logs
  EXPECT_EQ(print("", false), "written");
  if (::chown(logs().c_str(), kOtherUser, kOtherUser) != 0) GTEST_SKIP() << "only root can give files to another user";
  EXPECT_THAT(print("token", false), HasSubstr(logs() + ": belongs to user 54321"));
}

}  // namespace
}  // namespace trivet::cli
