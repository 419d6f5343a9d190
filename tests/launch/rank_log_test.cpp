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
  EXPECT_EQ(mode_of_log(), 01600u);
  EXPECT_EQ(print(" second", true), "written");
  EXPECT_EQ(text_of_log(), "first second");
  ::chmod(log().c_str(), 01644);
  EXPECT_EQ(print(" third", true), "written");
  EXPECT_EQ(mode_of_log(), 01600u);
  EXPECT_EQ(print("new", false), "written");
  EXPECT_EQ(text_of_log(), "new");
}

// Whoever has the old file open, or a link to it, sees nothing of the new one, and keeps what was in it.
TEST_F(RankLogs, OfANewJobAreNewFiles) {
  fs::create_hard_link(victim(), log());
  ::chmod(log().c_str(), 01666);
  const Descriptor reader(::open(victim().c_str(), O_RDONLY));
  EXPECT_EQ(print("token", false), "written");
  EXPECT_EQ(text_of_victim(), "precious");
  EXPECT_EQ(text_of_log(), "token");
  EXPECT_EQ(mode_of_log(), 01600u);
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
  ::chmod(log().c_str(), 01600);
  EXPECT_THAT(print("token", true), HasSubstr(log() + ": has several names"));
  EXPECT_EQ(text_of_victim(), "precious");
}

// Whatever the user has there under the name of a log.
TEST_F(RankLogs, ReplaceNoFileThatNoLauncherWrote) {
  const std::string why = "--enable_each_rank_log " + logs() + ": " + log() +
                          ": exists, and was not written by a launcher; remove it, or name another folder";
  for (const bool is_restart : {false, true}) {
    std::ofstream(log()) << "precious";
    ::chmod(log().c_str(), 0600);
    EXPECT_EQ(print("token", is_restart), why) << is_restart;
    EXPECT_EQ(text_of_log(), "precious");
    fs::remove(log());
  }
  std::ofstream(log()) << "";
  EXPECT_EQ(print("new", false), "written") << "nothing is lost with an empty file";
}

// All of them are checked before the first is replaced, with what the job is known to read.
TEST_F(RankLogs, AreNoFilesThatTheJobReads) {
  const auto check = [&](const std::vector<NamedFile>& inputs, const std::vector<std::string>& program) -> std::string {
    try {
      check_rank_logs(logs(), {0, 1}, inputs, program);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  ASSERT_EQ(print("a log", false), "written");
  EXPECT_EQ(check({{"--hostfile", victim()}}, {"trivet", "train", victim()}), "");
  const std::string link = logs() + "/link", read = log() + ": is read by this job (";
  fs::create_symlink(log(), link);
  EXPECT_THAT(check({{"--hostfile", log()}}, {"x"}), HasSubstr(read + "--hostfile)"));
  for (const std::string& word : {log(), link, "--config=" + log(), "data.train=" + link, "--set=data.train=" + log()})
    EXPECT_THAT(check({}, {"x", word}), HasSubstr(read + "the program)")) << word;
  std::ofstream(logs() + "/rank_1.err") << "precious";
  EXPECT_THAT(check({}, {"x"}), HasSubstr("rank_1.err: exists, and was not written by a launcher"));
}

TEST_F(RankLogs, AreInANewFolderThatOthersMayNotWriteTo) {
  const mode_t before = ::umask(0);
  const std::string made = logs() + "/a/b";
  EXPECT_NO_THROW(open_rank_log(made + "/", 0, "out", false));
  ::umask(before);
  for (const std::string& folder : {logs() + "/a", made})
    EXPECT_EQ(static_cast<unsigned>(fs::status(folder).permissions()), 0755u) << folder;
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
