#include "core/found_file.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t kStranger = 54321;

// A folder of this user, with the file "found".
class FoundFiles : public testing::Test {
 protected:
  FoundFiles() { write("found", "text"); }
  std::string at(const std::string& name) const { return folder_.at(name); }
  void write(const std::string& name, const std::string& text) const {
    folder_.write(name, text);
    mode(name, 0644);
  }
  void mode(const std::string& name, mode_t mode) const { ASSERT_EQ(::chmod(at(name).c_str(), mode), 0); }
  void link(const std::string& to) const {
    fs::remove(at("found"));
    fs::create_symlink(to, at("found"));
  }
  void give(const std::string& name) const {
    if (::lchown(at(name).c_str(), kStranger, kStranger) != 0) GTEST_SKIP() << "only root can give files to another user";
  }
  // What was read, or why nothing was.
  std::string outcome() const {
    try {
      const FoundText found = read_found_file(at("found"), "ask root");
      return found.exists ? "read: " + found.text : "not there";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

 private:
  const test::TemporaryFolder folder_;
};

// Whoever may replace a folder on the way decides where the way leads.
TEST_F(FoundFiles, AreNotReadThroughALinkWhoseWayOthersMayChange) {
  fs::create_directories(at("way/inner"));
  write("way/inner/file", "text");
  for (const std::string& to : {std::string("way/inner/file"), at("way/inner/file"), std::string("./way/../way/inner/file")}) {
    link(to);
    mode("way", 0755);
    EXPECT_EQ(outcome(), "read: text") << to;
    mode("way", 01777);
    EXPECT_EQ(outcome(), "read: text") << to;
    mode("way", 0777);
    EXPECT_THAT(outcome(), HasSubstr("way, which has mode 777, so that others may write to it")) << to;
  }
}

TEST_F(FoundFiles, AreReadIfNobodyElseCouldHaveChangedThem) {
  EXPECT_EQ(outcome(), "read: text");
  mode(".", 01777);  // as /tmp
  EXPECT_EQ(outcome(), "read: text");
  write("other", std::string(kMostBytesOfAFoundFile, 'x'));
  link("other");
  EXPECT_EQ(outcome().size(), 6 + static_cast<size_t>(kMostBytesOfAFoundFile));
  link(at("other"));
  EXPECT_EQ(outcome().size(), 6 + static_cast<size_t>(kMostBytesOfAFoundFile));
}

TEST_F(FoundFiles, ThatAreNotThereAreNoError) {
  link("nothing");
  EXPECT_THAT(outcome(), HasSubstr("nothing, which is not there")) << "somebody meant it to be used";
  fs::remove(at("found"));
  EXPECT_EQ(outcome(), "not there");
  EXPECT_FALSE(read_found_file(at("no/such/folder"), "").exists);
  EXPECT_FALSE(read_found_file("/dev/null/file", "").exists);
}

struct Hostile {
  const char* name;
  std::function<void(const std::string& folder)> make;
  const char* reason;
};

void make_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(descriptor);
}

// Each is put in the place of "found"; none may be read, and none may be waited for.
TEST_F(FoundFiles, ThatSomebodyElseMayHaveMadeAreRefusedWithTheReason) {
  const std::vector<Hostile> cases{
      {"pipe", [](const std::string& path) { ::mkfifo(path.c_str(), 0600); }, "is not a regular file"},
      {"folder", [](const std::string& path) { fs::create_directory(path); }, "is not a regular file"},
      {"socket", make_socket, "cannot be read: No such device or address"},
      {"link to a device", [](const std::string& path) { fs::create_symlink("/dev/zero", path); },
       "is a link to /dev/zero, which is not a regular file"},
      {"link to a process", [](const std::string& path) { fs::create_symlink("/proc/self/fd/0", path); }, "is a link"},
      {"link to itself", [](const std::string& path) { fs::create_symlink(path, path); },
       "is a link that leads nowhere, or over too many links"},
  };
  for (const Hostile& one : cases) {
    fs::remove_all(at("found"));
    one.make(at("found"));
    EXPECT_THAT(outcome(), HasSubstr(at("found") + ": " + one.reason)) << one.name;
    EXPECT_THAT(outcome(), HasSubstr("or ask root")) << one.name;
  }
}

TEST_F(FoundFiles, MayNotBeWritableForOthersAndNeitherMayTheirFolder) {
  for (const mode_t writable : {0666, 0664, 0646, 0602}) {
    mode("found", writable);
    EXPECT_THAT(outcome(), HasSubstr("so that others may write to it")) << std::oct << writable;
  }
  mode("found", 0644);
  for (const mode_t writable : {0777, 0775, 02770, 0702}) {
    mode(".", writable);
    EXPECT_THAT(outcome(), HasSubstr(": is in " + at(".").substr(0, at(".").size() - 2) + ", which has mode "))
        << std::oct << writable;
  }
  mode(".", 01777);
  fs::create_hard_link(at("found"), at("second"));
  EXPECT_THAT(outcome(), HasSubstr("has several names"));
  mode(".", 0755);
  EXPECT_EQ(outcome(), "read: text");
}

TEST_F(FoundFiles, MayNotBelongToSomebodyElse) {
  mode(".", 01777);
  give("found");
  if (IsSkipped()) return;
  EXPECT_THAT(outcome(), HasSubstr(": belongs to user 54321; it was found and not named"));
  link("other");
  write("other", "text");
  give("found");
  EXPECT_THAT(outcome(), HasSubstr(": is a link that belongs to user 54321"));
  fs::remove(at("found"));
  write("found", "text");
  mode(".", 0755);
  give(".");
  EXPECT_THAT(outcome(), HasSubstr(", which belongs to user 54321"));
}

TEST_F(FoundFiles, MayNotBeLargerThanTheyCanSensiblyBe) {
  write("found", "");
  fs::resize_file(at("found"), static_cast<uintmax_t>(kMostBytesOfAFoundFile) + 1);
  EXPECT_THAT(outcome(), HasSubstr(": has 1048577 bytes; at most 1048576 are accepted"));
  fs::resize_file(at("found"), uintmax_t{1} << 40);
  EXPECT_THAT(outcome(), HasSubstr("at most 1048576 are accepted"));
}

}  // namespace
}  // namespace trivet
