#include "core/bounded_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/descriptor.h"
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

TEST_F(BoundedFile, InAnotherEncodingSaysWhich) {
  for (const auto& [text, encoding] :
       std::vector<std::pair<std::string, std::string>>{{std::string("\xFF\xFE{\0}\0", 6), "UTF-16"},
                                                        {std::string("\xFE\xFF\0{\0}", 6), "UTF-16"},
                                                        {std::string("\xFF\xFE\0\0{\0\0\0", 8), "UTF-32"},
                                                        {std::string("\0\0\xFE\xFF\0\0\0{", 8), "UTF-32"}}) {
    write(text);
    EXPECT_EQ(read_bounded(path_, 10, "a config").problem,
              "is in " + encoding + "; save it as UTF-8 (iconv -f " + encoding + " -t UTF-8)");
  }
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

// Nothing waits for ever for what never comes.
TEST_F(BoundedFile, APipeFromWhichNothingComesIsAProblem) {
  constexpr std::chrono::milliseconds kShort{5};
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const std::string nobody = "is a FIFO or a pipe that nobody has written to; start its writer first";
  EXPECT_EQ(read_bounded(path_, 10, "a config", kShort).problem, nobody);
  const Descriptor silent(::open(path_.c_str(), O_RDWR));  // a writer that writes nothing
  EXPECT_EQ(read_bounded(path_, 10, "a config", kShort).problem,
            "is a pipe or a device from which nothing has come for 0.005 s");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const std::string of_process = "/dev/fd/" + std::to_string(ends[0]);  // as the shell names <(command)
  EXPECT_THAT(read_bounded(of_process, 10, "a config", kShort).problem, testing::HasSubstr("nothing has come"));
  ASSERT_EQ(::write(writing.number(), "{}", 2), 2);
  writing.reset();
  EXPECT_EQ(read_bounded(of_process, 10, "a config", kShort).text, "{}");
  EXPECT_EQ(read_bounded(of_process, 10, "a config", kShort).problem, nobody);
}

}  // namespace
}  // namespace trivet
