#include "core/bounded_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

class BoundedFile : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.at("file");
};

TEST_F(BoundedFile, IsReadUpToItsLimitAndRefusedBeyondIt) {
  write(std::string(100'000, 'x'));
  const BoundedText whole = read_bounded(path_, 100'000, "a config");
  EXPECT_EQ(whole.text, std::string(100'000, 'x'));
  EXPECT_EQ(whole.problem, "");
  const BoundedText refused = read_bounded(path_, 99'999, "a config");
  EXPECT_EQ(refused.text, "");
  EXPECT_EQ(refused.problem, "has 100000 bytes; a config may have at most 99999");
  write("");
  EXPECT_EQ(read_bounded(path_, 1, "a config").problem, "");
}

TEST_F(BoundedFile, SaysWhyItCannotBeRead) {
  EXPECT_EQ(read_bounded(path_, 10, "a config").problem, "cannot be read: No such file or directory");
  EXPECT_EQ(read_bounded("/", 10, "a config").problem, "is a folder; name a file");
}

// Devices and pipes report a size of 0.
TEST_F(BoundedFile, ADeviceWithoutAnEndIsReadUpToTheLimit) {
  EXPECT_EQ(read_bounded("/dev/zero", 1'000'000, "a schedule").problem,
            "is longer than 1000000 bytes, the most that a schedule may have");
}

TEST_F(BoundedFile, APipeIsReadToItsEnd) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::thread writer([&] { write(std::string(200'000, 'y')); });
  const BoundedText read = read_bounded(path_, 200'000, "a config");
  writer.join();
  EXPECT_EQ(read.text, std::string(200'000, 'y'));
}

}  // namespace
}  // namespace trivet
