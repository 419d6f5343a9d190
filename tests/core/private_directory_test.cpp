#include "core/private_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal_of(const std::string& path) {
  try {
    make_private_directory(path, "key");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class PrivateDirectory : public ::testing::Test {
 protected:
  const test::TemporaryFolder folder_;
};

TEST_F(PrivateDirectory, HasMode0700AndMayBeThereAlready) {
  const std::string path = folder_.at("mine");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(refusal_of(path), "");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
  }
}

TEST_F(PrivateDirectory, IsNoneThatOthersMayUse) {
  const std::string path = folder_.at("open");
  for (const unsigned mode : {0710u, 0704u, 0701u}) {
    std::filesystem::create_directory(path);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(refusal_of(path), AllOf(HasSubstr("key: \"" + path + "\" has mode "), HasSubstr("so that others may use it")));
  }
}

TEST_F(PrivateDirectory, IsNoLinkAndNoFile) {
  std::filesystem::create_directory(folder_.at("target"));
  std::filesystem::permissions(folder_.at("target"), std::filesystem::perms(0700));
  std::filesystem::create_directory_symlink(folder_.at("target"), folder_.at("link"));
  EXPECT_THAT(refusal_of(folder_.at("link")), HasSubstr("is not a directory that can be opened"));
  EXPECT_THAT(refusal_of(folder_.write("file", "")), HasSubstr("is not a directory that can be opened"));
  EXPECT_THAT(refusal_of(folder_.at("none/below")), HasSubstr("cannot be created: No such file or directory"));
}

TEST_F(PrivateDirectory, MayEndWithSlashes) {
  EXPECT_EQ(refusal_of(folder_.at("mine") + "//"), "");
  EXPECT_TRUE(std::filesystem::is_directory(folder_.at("mine")));
  std::filesystem::create_directory_symlink(folder_.at("mine"), folder_.at("link"));
  EXPECT_THAT(refusal_of(folder_.at("link") + "/"), HasSubstr("is not a directory that can be opened"));
}

TEST_F(PrivateDirectory, IsNotBelowALinkAndItsPathHasNoDots) {
  std::filesystem::create_directory(folder_.at("target"));
  std::filesystem::create_directory_symlink(folder_.at("target"), folder_.at("link"));
  EXPECT_THAT(refusal_of(folder_.at("link/mine")), HasSubstr("is in \"" + folder_.at("link") + "\", which is a link"));
  for (const char* path : {"link/.", "link/./mine", "link/../mine"})
    EXPECT_THAT(refusal_of(folder_.at(path)), HasSubstr("contains \".\" or \"..\"")) << path;
  EXPECT_FALSE(std::filesystem::exists(folder_.at("mine")));
}

TEST_F(PrivateDirectory, IsKnownFromAnotherOneOfItsName) {
  const std::string path = folder_.at("mine");
  const HeldDirectory held = make_private_directory(path, "key");
  EXPECT_TRUE(held.is_in_place());
  ASSERT_EQ(::chmod(path.c_str(), 0750), 0);
  EXPECT_FALSE(held.is_in_place()) << "others may use it";
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  std::filesystem::rename(path, folder_.at("away"));
  EXPECT_FALSE(held.is_in_place()) << "nothing is there";
  const HeldDirectory other = make_private_directory(path, "key");
  EXPECT_FALSE(held.is_in_place());
  EXPECT_TRUE(other.is_in_place());
  std::filesystem::remove(path);
  std::filesystem::create_directory_symlink(folder_.at("away"), path);
  EXPECT_FALSE(held.is_in_place()) << "a link to it";
}

TEST_F(PrivateDirectory, IsNotWhereOthersCanReplaceIt) {
  const std::string parent = folder_.at("parent"), path = parent + "/mine";
  std::filesystem::create_directory(parent);
  for (const unsigned mode : {0720u, 0702u}) {
    ASSERT_EQ(::chmod(parent.c_str(), mode), 0);
    EXPECT_THAT(refusal_of(path), HasSubstr("is in \"" + parent + "\", which has mode 7"));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  ASSERT_EQ(::chmod(parent.c_str(), 01777), 0);
  EXPECT_EQ(refusal_of(path), "") << "as /dev/shm";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(::chown(parent.c_str(), 12345, 12345), 0);
  EXPECT_THAT(refusal_of(path), HasSubstr("which belongs to user 12345, who can replace it"));
}

TEST(IsInMemory, AsksTheParentOfWhatIsNotThere) {
  EXPECT_TRUE(is_in_memory("/dev/shm", "key"));
  EXPECT_TRUE(is_in_memory("/dev/shm/nothing-of-this-name", "key"));
  EXPECT_TRUE(is_in_memory("/dev/shm/nothing-of-this-name/", "key"));
  EXPECT_FALSE(is_in_memory("/proc", "key"));
  EXPECT_FALSE(is_in_memory("/proc/nothing", "key"));
  try {
    is_in_memory("/nothing/below", "key");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "key: \"/nothing/below\": there is no directory \"/nothing\"");
  }
}

}  // namespace
}  // namespace trivet
