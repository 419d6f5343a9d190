#include "core/file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <limits>

#include "tests/support/faulty_file_system.h"
#include "tests/support/memory_file_system.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using support::Fault;
using support::FaultyFileSystem;
using support::MemoryFileSystem;
using support::PowerLoss;

class RealFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.at(name); }
  template <typename Work>
  int error_of(Work&& work) {
    try {
      work();
    } catch (const FileError& error) {
      return error.error_number();
    }
    return 0;
  }

  FileSystem& files_ = real_file_system();
  const test::TemporaryFolder folder_;
  const std::string& root_ = folder_.path();
};

TEST_F(RealFiles, WritesReadsListsRenamesAndRemoves) {
  files_.create_directory(path("a"));
  files_.create_directory(path("a"));  // it exists already: nothing happens
  write_text(files_, path("a/one"), "first");
  write_text(files_, path("a/one"), "1");  // replaced
  files_.rename(path("a/one"), path("a/two"));
  files_.sync_directory(path("a"));
  EXPECT_EQ(files_.kind(path("a/one")), EntryKind::Missing);
  EXPECT_EQ(read_text(files_, path("a/two"), 10), "1");
  ASSERT_EQ(files_.list(root_).size(), 1u);
  EXPECT_EQ(files_.list(root_)[0].kind, EntryKind::Directory);
  EXPECT_EQ(error_of([&] { files_.remove(path("a")); }), ENOTEMPTY);
  remove_tree(files_, path("a"));
  EXPECT_TRUE(files_.list(root_).empty());
  EXPECT_GT(files_.free_bytes(root_), 0);
  EXPECT_LT(files_.free_bytes(root_), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(files_.free_bytes("/proc"), std::numeric_limits<int64_t>::max()) << "no size of its own, as ramfs";
}

TEST_F(RealFiles, DirectoriesAreMadeWithThoseAboveThem) {
  create_directories(files_, path("a/b/c"));
  create_directories(files_, path("a/b/c/"));
  create_directories(files_, "/");
  EXPECT_EQ(files_.kind(path("a/b/c")), EntryKind::Directory);
  ASSERT_EQ(::symlink("a", path("link").c_str()), 0);
  create_directories(files_, path("link"));
  create_directories(files_, path("link/d"));
  EXPECT_EQ(files_.kind(path("a/d")), EntryKind::Directory);
  write_text(files_, path("file"), "x");
  EXPECT_EQ(error_of([&] { create_directories(files_, path("file/b")); }), EEXIST);
}

TEST_F(RealFiles, ReservedSpaceDoesNotShowInTheSize) {
  const auto file = files_.create(path("a"), 1 << 20);
  file->write("abc");
  file->close();
  EXPECT_EQ(files_.open(path("a"))->size(), 3);
}

TEST_F(RealFiles, AnErrorNamesTheOperationThePathAndTheReason) {
  try {
    files_.open(path("nothing"));
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), "open " + path("nothing") + ": No such file or directory");
    EXPECT_EQ(error.path(), path("nothing"));
  }
}

TEST_F(RealFiles, OnlyRegularFilesAreOpened) {
  write_text(files_, path("file"), "x");
  ASSERT_EQ(::symlink("file", path("link").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { files_.open(path("link")); }), ELOOP);
  EXPECT_EQ(error_of([&] { files_.open(path("pipe")); }), EINVAL);  // and does not wait for a writer
  EXPECT_EQ(error_of([&] { files_.open(root_); }), EISDIR);
  EXPECT_EQ(files_.kind(path("link")), EntryKind::Other);
}

TEST_F(RealFiles, AFileIsNotCreatedThroughALink) {
  write_text(files_, path("file"), "kept");
  ASSERT_EQ(::symlink("file", path("link").c_str()), 0);
  EXPECT_EQ(error_of([&] { files_.create(path("link"), 0); }), ELOOP);
  EXPECT_EQ(read_text(files_, path("file"), 10), "kept");
}

TEST_F(RealFiles, AnErrorOfSyncIsThrown) {
  const auto device = files_.create("/dev/null", 0);  // does not support fsync
  EXPECT_EQ(error_of([&] { device->sync(); }), EINVAL);
}

TEST_F(RealFiles, RemoveTreeDoesNotFollowLinks) {
  files_.create_directory(path("kept"));
  write_text(files_, path("kept/file"), "x");
  files_.create_directory(path("gone"));
  ASSERT_EQ(::symlink(path("kept").c_str(), path("gone/link").c_str()), 0);
  remove_tree(files_, path("gone"));
  EXPECT_EQ(read_text(files_, path("kept/file"), 1), "x");
}

TEST_F(RealFiles, ReadingPastTheEndAndTooLargeTextsAreErrors) {
  write_text(files_, path("a"), "abc");
  std::array<std::byte, 4> bytes;
  EXPECT_EQ(error_of([&] { files_.open(path("a"))->read_exactly(0, bytes); }), ENODATA);
  EXPECT_EQ(error_of([&] { read_text(files_, path("a"), 2); }), EFBIG);
  EXPECT_EQ(read_text(files_, path("a"), 3), "abc");
}

TEST_F(RealFiles, ALockIsHeldByOneAndEndsWithItsHolder) {
  write_text(files_, path("lock"), "an earlier holder");
  LockAttempt first = files_.lock(path("lock"), "me");
  ASSERT_TRUE(first.lock);
  const LockAttempt second = files_.lock(path("lock"), "you");
  EXPECT_FALSE(second.lock);
  EXPECT_EQ(second.holder, "me");
  first.lock.reset();
  EXPECT_TRUE(files_.lock(path("lock"), "you").lock);
}

// As on a full file system: the file is there, and nothing can be written into it.
TEST_F(RealFiles, ALockHoldsAlthoughItsHoldersNameCannotBeWritten) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit nothing{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &nothing), 0);
  int error = 0;
  LockAttempt attempt;
  try {
    attempt = files_.lock(path("lock"), "me");
  } catch (const FileError& failure) {
    error = failure.error_number();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(attempt.lock);
  EXPECT_FALSE(files_.lock(path("lock"), "you").lock);
}

TEST_F(RealFiles, TheLockOfAKilledProcessIsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const LockAttempt held = files_.lock(path("lock"), "child");
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(files_.lock(path("lock"), "parent").holder, "child");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(files_.lock(path("lock"), "parent").lock);
}

TEST(FaultyFiles, TheKthCallFailsOnceAndShortWritesAreContinued) {
  MemoryFileSystem disk;
  FaultyFileSystem error(disk, Fault::IoError, 2);
  const auto file = error.create("/a", 0);
  EXPECT_THROW(file->write("abcdef"), FileError);
  file->write("abcdef");
  FaultyFileSystem cut(disk, Fault::ShortTransfer, 2);
  cut.create("/b", 0)->write("abcdef");
  EXPECT_EQ(cut.calls(), 3);
  EXPECT_EQ(read_text(disk, "/b", 10), "abcdef");
  FaultyFileSystem short_read(disk, Fault::ShortTransfer, 2);
  EXPECT_EQ(read_text(short_read, "/b", 10), "abcdef");
  FaultyFileSystem stop(disk, Fault::StopMidWrite, 2);
  EXPECT_THROW(stop.create("/c", 0)->write("abcdef"), support::Stopped);
  EXPECT_THROW(stop.kind("/c"), support::Stopped);
  EXPECT_EQ(read_text(disk, "/c", 10), "abc");
}

TEST(MemoryFiles, DirectoriesThatWereMadeSurviveAPowerLoss) {
  MemoryFileSystem disk;
  create_directories(disk, "/a/b");
  disk.lose_power(PowerLoss::DropAll);
  EXPECT_EQ(disk.kind("/a/b"), EntryKind::Directory);
}

TEST(MemoryFiles, PowerLossTakesWhatWasNotSynced) {
  const auto prepare = [] {
    auto disk = std::make_unique<MemoryFileSystem>();
    write_text(*disk, "/synced", "old");
    disk->sync_directory("");
    write_text(*disk, "/new", "n");  // its name is not synced
    disk->create("/synced", 0)->write("changed");
    return disk;
  };
  auto disk = prepare();
  disk->lose_power(PowerLoss::DropAll);
  EXPECT_EQ(read_text(*disk, "/synced", 10), "old");
  EXPECT_EQ(disk->kind("/new"), EntryKind::Missing);
  disk = prepare();
  disk->lose_power(PowerLoss::KeepEntries);
  EXPECT_EQ(read_text(*disk, "/synced", 10), "old");
  EXPECT_EQ(read_text(*disk, "/new", 10), "n");
  disk = prepare();
  disk->lose_power(PowerLoss::KeepBytes);
  EXPECT_EQ(read_text(*disk, "/synced", 10), "changed");
  EXPECT_EQ(disk->kind("/new"), EntryKind::Missing);
}

}  // namespace
}  // namespace trivet
