#include "comm/secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "comm/descriptor.h"
#include "comm/sha256.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

using ::testing::HasSubstr;

std::string hex(const Digest& digest) { return hexadecimal(bytes_of(digest)); }

TEST(Sha256, GivesThePublishedDigests) {  // FIPS 180-4 examples
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HmacSha256, GivesThePublishedDigests) {  // RFC 4231, cases 1, 2 and 6
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

class SecretFile : public ::testing::Test {
 protected:
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path_, std::ios::binary) << text;
    ::chmod(path_.c_str(), mode);
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  std::string message() {
    try {
      secret_from_file(path_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  std::string path_ = ::testing::TempDir() + "trivet_secret_" + std::to_string(::getpid());
};

TEST_F(SecretFile, OfItsOwnerAloneIsRead) {
  write("sixteen bytes or more", 0600);
  EXPECT_EQ(secret_from_file(path_).key(), "sixteen bytes or more");
}

TEST_F(SecretFile, ThatOthersMayReadIsRefused) {
  write("sixteen bytes or more", 0644);
  EXPECT_THAT(message(), HasSubstr("others may read it (mode 644"));
}

TEST_F(SecretFile, ThatIsTooShortOrMissingIsRefused) {
  write("short", 0600);
  EXPECT_THAT(message(), HasSubstr("5 bytes are not accepted as a secret"));
  ::unlink(path_.c_str());
  EXPECT_THAT(message(), HasSubstr("No such file or directory; make one with"));
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
