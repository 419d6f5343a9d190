// Files that travel from rank to rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/checkpoint/file_transfer.h"
#include "tests/checkpoint/pretend_hosts.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string bytes_of_file(int64_t count, int seed) {
  std::string text(count, '\0');
  for (int64_t i = 0; i < count; ++i) text[i] = static_cast<char>((i * 31 + i / 4096 + seed) & 0xff);
  return text;
}

FileTransfer move_file(int from, int to, const std::string& name, const std::string& contents) {
  return {.from = from,
          .to = to,
          .source = "/" + name,
          .target = fmt::format("/{}-from-{}", name, from),
          .bytes = static_cast<int64_t>(contents.size()),
          .xxh3 = XXH3_64bits(contents.data(), contents.size())};
}

struct TransferTest : ::testing::Test {
  std::array<MemoryFileSystem, 3> disks;
  const std::vector<PretendHost> job{{0}, {1}, {2}};

  void transfer_all(const std::vector<FileTransfer>& transfers) {
    run_on_hosts(job, [&](const Participants& ranks, const JobHosts& hosts, int number) {
      transfer(disks[number], ranks, hosts, transfers);
    });
  }
  std::string error_of(const std::vector<FileTransfer>& transfers) {
    try {
      transfer_all(transfers);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(TransferTest, FilesOfAllSizesArriveWhole) {
  const std::vector<int64_t> sizes{1, kTransferBytes - 1, kTransferBytes, kTransferBytes + 1, 2 * kTransferBytes + 77};
  std::vector<FileTransfer> transfers;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string name = fmt::format("file{}", i), contents = bytes_of_file(sizes[i], static_cast<int>(i));
    write_text(disks[i % 3], "/" + name, contents);
    for (int to = 0; to < 3; ++to)
      if (to != static_cast<int>(i % 3)) transfers.push_back(move_file(static_cast<int>(i % 3), to, name, contents));
  }
  transfer_all(transfers);
  for (const FileTransfer& moved : transfers)
    EXPECT_EQ(read_text(disks[moved.to], moved.target, 1 << 30), read_text(disks[moved.from], moved.source, 1 << 30));
}

TEST_F(TransferTest, AFileThatCannotBeReadIsNamedByItsSender) {
  const std::string contents = bytes_of_file(5000, 1);
  write_text(disks[2], "/there", contents);
  EXPECT_THAT(error_of({move_file(2, 0, "gone", contents), move_file(2, 0, "there", contents)}),
              AllOf(HasSubstr("/gone"), HasSubstr("No such file")));
  EXPECT_EQ(read_text(disks[0], "/there-from-2", 1 << 20), contents) << "the files after it arrive";
}

TEST_F(TransferTest, AFileWithOtherContentsIsRefused) {
  const std::string contents = bytes_of_file(5000, 1);
  write_text(disks[0], "/file", bytes_of_file(5000, 2));
  EXPECT_THAT(error_of({move_file(0, 1, "file", contents)}), HasSubstr("of what rank 0 has sent, expected"));
}

}  // namespace
}  // namespace trivet::checkpoint
