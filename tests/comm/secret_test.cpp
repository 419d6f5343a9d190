#include "comm/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/descriptor.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::comm {
namespace {

using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  std::string message(const std::string& path) {
    try {
      secret_from_file(path, "TRIVET_SECRET_FILE=" + path);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  std::string message() { return message(path_); }
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.at("secret"), other_ = folder_.at("other");
};

TEST_F(SecretFile, OfItsOwnerAloneIsRead) {
  for (mode_t mode : {0600, 0400, 0700}) {
    write("sixteen bytes or more", mode);
    EXPECT_EQ(secret_from_file(path_, "").key(), "sixteen bytes or more") << std::oct << mode;
    ::unlink(path_.c_str());
  }
}

// Each permission bit is tried on its own: a file that the group may read is not the owner's alone, and one that others may
// write could be theirs.
TEST_F(SecretFile, ThatAnybodyElseMayReadWriteOrExecuteIsRefused) {
  for (mode_t bit : {0040, 0020, 0010, 0004, 0002, 0001}) {
    write("sixteen bytes or more", 0600 | bit);
    EXPECT_THAT(message(), HasSubstr(fmt::format("others may read or change it (mode {:o}", 0600 | bit)));
    EXPECT_THAT(message(), HasSubstr("it must be mode 600 and yours: chmod 600 " + path_));
  }
}

TEST_F(SecretFile, OfAnotherUserIsRefused) {
  write("sixteen bytes or more", 0600);
  if (::chown(path_.c_str(), 12345, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "only root can give files away";
  EXPECT_THAT(message(), HasSubstr("(mode 600, owner 12345); it must be mode 600 and yours"));
}

TEST_F(SecretFile, ThatIsTooShortTooLongOrMissingIsRefused) {
  write("fifteen bytes..", 0600);
  EXPECT_THAT(message(), HasSubstr("15 bytes are not accepted as a secret; it must have 16 to 4096"));
  write(std::string(4097, 'x'), 0600);
  EXPECT_THAT(message(), HasSubstr("4097 bytes are not accepted as a secret"));
  write(std::string(4096, 'x'), 0600);
  EXPECT_EQ(message(), "accepted");
  ::unlink(path_.c_str());
  EXPECT_THAT(message(), HasSubstr("No such file or directory; create one with"));
}

TEST_F(SecretFile, ThatIsAPipeADeviceOrADirectoryIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(message(), HasSubstr(path_ + ": is not a regular file; a secret must be a file of 16 to 4096 bytes"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("is not a regular file"));
  EXPECT_THAT(message("/tmp"), HasSubstr("is not a regular file"));
}

// Kubernetes mounts a secret as links: secret -> ..data/secret, ..data -> ..2026_01_01.
TEST_F(SecretFile, MayBeASymbolicLinkToAFileThatIsGoodEnough) {
  write("sixteen bytes or more", 0600);
  ASSERT_EQ(::symlink(path_.c_str(), other_.c_str()), 0);
  EXPECT_EQ(message(other_), "accepted");
  ::chmod(path_.c_str(), 0640);
  EXPECT_THAT(message(other_), HasSubstr("others may read or change it (mode 640"));
  ::unlink(path_.c_str());
  EXPECT_THAT(message(other_), HasSubstr("No such file or directory"));
  ASSERT_EQ(::symlink(other_.c_str(), path_.c_str()), 0);
  EXPECT_THAT(message(other_), HasSubstr("Too many levels of symbolic links"));
}

TEST_F(SecretFile, ThatIsASymbolicLinkIsRefusedWhereSomebodyElseCouldHaveMadeIt) {
  write("sixteen bytes or more", 0600);
  ASSERT_EQ(::symlink(path_.c_str(), other_.c_str()), 0);
  try {
    secret_from_file(other_, other_, Links::Refused);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a symbolic link, which somebody else could point elsewhere; name the file itself"));
  }
}

TEST(SecretDescriptor, ThatIsAPipeIsRefusedWithoutWaiting) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor reading(ends[0]), writing(ends[1]);
  try {
    secret_from_descriptor(reading.number());
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not a regular file"));
  }
}

TEST_F(SecretFile, AsADescriptorCanBeReadByEveryRankThatInheritsIt) {
  write("sixteen bytes or more", 0600);
  Descriptor file(::open(path_.c_str(), O_RDONLY));
  EXPECT_EQ(secret_from_descriptor(file.number()).key(), "sixteen bytes or more");
  EXPECT_EQ(secret_from_descriptor(file.number()).key(), "sixteen bytes or more");
  EXPECT_NE(::fcntl(file.number(), F_GETFD) & FD_CLOEXEC, 0) << "children of a rank would inherit the secret";
}

}  // namespace
}  // namespace trivet::comm
