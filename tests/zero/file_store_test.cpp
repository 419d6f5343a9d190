#include "zero/offload/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <numeric>
#include <thread>

#include "core/buffer.h"
#include "core/error.h"
#include "core/random.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/memory_file_system.h"
#include "tests/support/no_more_threads.h"
#include "tests/support/temporary_folder.h"
#include "zero/offload/file_tensor.h"
#include "zero/staging.h"

namespace trivet::zero::offload {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using trivet::support::Fault;
using trivet::support::FaultyFileSystem;
using trivet::support::MemoryFileSystem;

// Page-aligned memory.
class Memory {
 public:
  explicit Memory(int64_t bytes, uint64_t seed = 0)
      : buffer_(host_allocator(), meter_, MemoryCategory::Buffers, DType::UInt8, {std::max<int64_t>(bytes, 1)}), bytes_(bytes) {
    if (seed == 0) return;
    for (int64_t i = 0; i < bytes; ++i) data()[i] = static_cast<std::byte>(philox(seed, static_cast<uint64_t>(i), 0)[0]);
  }
  std::byte* data() { return static_cast<std::byte*>(buffer_.view().data); }
  bool operator==(Memory& other) { return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0; }

 private:
  MemoryMeter meter_;
  Buffer buffer_;
  int64_t bytes_;
};

class FileStoreInFolder : public ::testing::Test {
 protected:
  FileStoreOptions options(int64_t capacity, int64_t block = 8192, int threads = 3) const {
    return {
        .path = root_ + "/store", .folder_key = "KEY", .capacity_bytes = capacity, .block_bytes = block, .threads = threads};
  }
  bool empty() const { return std::filesystem::is_empty(root_); }
  const test::TemporaryFolder folder_;
  const std::string& root_ = folder_.path();
};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const StorageError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Storage);
    return error.what();
  } catch (const ConfigError& error) {
    return std::string("config: ") + error.what();
  }
  return "nothing";
}

TEST_F(FileStoreInFolder, GivesBackWhatWasWrittenWhateverTheSizes) {
  for (const int64_t block : {1, 4096, 10'000, 1 << 20}) {
    const std::vector<int64_t> sizes{0, 1, 4095, 4096, 4097, 8192, 100'003, 3 << 20};
    const auto store = make_file_store(real_file_system(), options(int64_t{4} << 20, block));
    std::vector<int64_t> offsets;
    std::deque<Memory> written;
    std::vector<PendingCopy> copies;
    for (const int64_t size : sizes) offsets.push_back(store->allocate(size));
    for (size_t i = 0; i < sizes.size(); ++i) written.emplace_back(sizes[i], i + 1);
    for (size_t i = 0; i < sizes.size(); ++i) copies.push_back(store->write(offsets[i], written[i].data(), sizes[i]));
    for (const PendingCopy& copy : copies) copy.wait();
    for (size_t i = 0; i < sizes.size(); ++i) {
      Memory read(sizes[i]);
      store->read(offsets[i], read.data(), sizes[i]).wait();
      EXPECT_TRUE(read == written[i]) << sizes[i] << " bytes in blocks of " << block;
    }
    EXPECT_EQ(store->bytes_read(), std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  }
}

// The store is destroyed while most of a copy still waits for the store's only thread.
TEST(FileStoreInMemory, WhatWasAskedForIsDoneBeforeTheStoreIsGone) {
  constexpr int64_t kBlocks = 4096, kBytes = kBlocks * kDirectAlignment;
  MemoryFileSystem files;
  Memory data(kBytes, 1);
  auto store = make_file_store(
      files, {.path = "/store", .folder_key = "KEY", .capacity_bytes = kBytes, .block_bytes = kDirectAlignment, .threads = 1});
  PendingCopy written = store->write(store->allocate(kBytes), data.data(), kBytes);
  store.reset();
  std::atomic<bool> done = false;
  std::thread waiting([&] {
    written.wait();
    done = true;
  });
  for (int i = 0; i < 1000 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (!done) {
    std::fputs("the copy never ends\n", stderr);
    std::_Exit(1);  // the thread waits forever
  }
  waiting.join();
}

TEST_F(FileStoreInFolder, ATailTakesNothingFromWhatFollows) {
  const auto store = make_file_store(real_file_system(), options(1 << 16));
  const int64_t one = store->allocate(100), two = store->allocate(100);
  Memory ones(100, 1), twos(100, 2), read(100);
  store->write(two, twos.data(), 100).wait();
  store->write(one, ones.data(), 100).wait();
  store->read(two, read.data(), 100).wait();
  EXPECT_TRUE(read == twos);
  EXPECT_EQ(two % 4096, 0);
}

TEST_F(FileStoreInFolder, WhatWasNeverWrittenReadsAsZero) {
  const auto store = make_file_store(real_file_system(), options(1 << 16));
  Memory read(5000, 7), zero(5000);
  store->read(store->allocate(5000), read.data(), 5000).wait();
  EXPECT_TRUE(read == zero);
}

TEST_F(FileStoreInFolder, NothingIsLeftInTheFolderNorSeenThere) {
  {
    const auto store = make_file_store(real_file_system(), options(1 << 20));
    EXPECT_TRUE(empty());
  }
  EXPECT_TRUE(empty());
  const pid_t child = ::fork();  // killed while it writes
  if (child == 0) {
    const auto store = make_file_store(real_file_system(), options(1 << 20));
    Memory data(1 << 20, 1);
    const int64_t offset = store->allocate(1 << 20);
    for (;;) store->write(offset, data.data(), 1 << 20).wait();
  }
  ::usleep(50'000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(empty());
}

// The bytes on the disk of the open file in `folder`, as the system reports them; -1 if there is none.
int64_t bytes_on_disk(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(entry.path(), gone).string().starts_with(folder + "/")) continue;
    struct stat status {};
    EXPECT_EQ(::stat(entry.path().c_str(), &status), 0);
    return status.st_blocks * 512;
  }
  return -1;
}

TEST_F(FileStoreInFolder, TheSpaceIsTakenAtOnce) {
  const auto store = make_file_store(real_file_system(), options(int64_t{64} << 20));
  EXPECT_GE(bytes_on_disk(root_), int64_t{64} << 20);
}

TEST_F(FileStoreInFolder, MoreThanThePlannedBytesOrAnUnalignedTransferIsADefect) {
  const auto store = make_file_store(real_file_system(), options(8192));
  const int64_t offset = store->allocate(8192);
  Memory data(8192);
  EXPECT_THROW(store->allocate(1), std::logic_error);
  EXPECT_THROW(store->read(offset, data.data() + 64, 100), std::logic_error);
  EXPECT_THROW(store->read(offset + 64, data.data(), 100), std::logic_error);
  EXPECT_THROW(store->read(offset + 8192, data.data(), 100), std::logic_error);
}

TEST_F(FileStoreInFolder, AFolderThatCannotBeUsedIsAMatterOfTheConfig) {
  FileStoreOptions missing = options(1 << 20);
  missing.path = root_ + "/none/store";
  EXPECT_EQ(message_of([&] { make_file_store(real_file_system(), missing); }),
            "config: KEY: create " + root_ +
                "/none/store: No such file or directory; name a folder that exists and that this "
                "user may write to");
}

TEST_F(FileStoreInFolder, TooLittleSpaceIsKnownAtTheStart) {
  const std::string message = message_of([&] { make_file_store(real_file_system(), options(int64_t{1} << 50)); });
  EXPECT_THAT(message, StartsWith("KEY: reserve " + root_ + "/store: "));
  EXPECT_THAT(message, HasSubstr("; this rank keeps 1125899906842624 bytes there"));
  EXPECT_TRUE(empty());
}

class FileStoreFaults : public FileStoreInFolder {
 protected:
  // 12 blocks of 8192 bytes, the last with a tail, are written and read by one thread: calls 2 to 14 and 15 to 27.
  std::string message(Fault fault, int64_t call) {
    FaultyFileSystem files(real_file_system(), fault, call);
    return message_of([&] {
      const auto store = make_file_store(files, options(1 << 20, 8192, 1));
      const int64_t bytes = 12 * 8192 - 5, offset = store->allocate(bytes);
      Memory data(bytes, 3), read(bytes);
      store->write(offset, data.data(), bytes).wait();
      store->read(offset, read.data(), bytes).wait();
      EXPECT_TRUE(read == data);
    });
  }
};

TEST_F(FileStoreFaults, AreNamedWithFileBytesAndReason) {
  EXPECT_EQ(message(Fault::None, 0), "nothing");
  EXPECT_EQ(message(Fault::IoError, 3), root_ + "/store: write of 8192 bytes at 8192: Input/output error");
  EXPECT_EQ(message(Fault::IoError, 16), root_ + "/store: read of 8192 bytes at 8192: Input/output error");
  EXPECT_THAT(message(Fault::NoSpace, 4),
              ::testing::MatchesRegex(".*/store: write of 8192 bytes at 16384: No space left on device, [0-9]+ are free; free "
                                      "space, or name another folder"));
  EXPECT_THAT(message(Fault::NoSpace, 1), HasSubstr("KEY: create " + root_ +
                                                    "/store: No space left on device; this rank keeps "
                                                    "1048576 bytes there"));
}

TEST_F(FileStoreFaults, AShortTransferIsFinished) {
  for (int64_t call = 2; call <= 27; ++call) EXPECT_EQ(message(Fault::ShortTransfer, call), "nothing") << "call " << call;
}

TEST_F(FileStoreFaults, DoNotKeepOthersFromBeingMoved) {
  FaultyFileSystem files(real_file_system(), Fault::IoError, 2);
  const auto store = make_file_store(files, options(1 << 16, 8192, 1));
  Memory data(4096, 1), read(4096);
  const int64_t one = store->allocate(4096), two = store->allocate(4096);
  const PendingCopy failed = store->write(one, data.data(), 4096), good = store->write(two, data.data(), 4096);
  EXPECT_THROW(failed.wait(), StorageError);
  good.wait();
  store->read(two, read.data(), 4096).wait();
  EXPECT_TRUE(read == data);
}

// The file system in memory has no O_DIRECT.
TEST(FileStoreWithoutDirect, GoesThroughTheCacheAndSaysSoOnce) {
  MemoryFileSystem files;
  std::vector<std::string> said;
  const auto store = make_file_store(files, {.path = "/store", .folder_key = "KEY", .capacity_bytes = 1 << 16},
                                     [&](const std::string& text) { said.push_back(text); });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("/store: the file system refuses uncached transfers (O_DIRECT)"));
  Memory data(5001, 1), read(5001);
  const int64_t offset = store->allocate(5001);
  store->write(offset, data.data(), 5001).wait();
  store->read(offset, read.data(), 5001).wait();
  EXPECT_TRUE(read == data);
  EXPECT_EQ(said.size(), 1u);
}

TEST(FileTensor, IsReadAndWrittenFromAnyGranuleOn) {
  MemoryFileSystem files;
  const auto store = make_file_store(files, {.path = "/store", .folder_key = "KEY", .capacity_bytes = 1 << 20});
  FileTensor before(*store, DType::Float32, 100), tensor(*store, DType::BFloat16, 5000);
  EXPECT_EQ(tensor.granule_elements(), 2048);
  EXPECT_EQ(before.granule_elements(), 1024);
  Memory all(10'000, 1), beside(400, 2), part((5000 - 2048) * 2), again(10'000), beside_again(400);
  const auto whole = [](Memory& memory) { return TensorView{memory.data(), DType::BFloat16, {5000}}; };
  const TensorView rest{part.data(), DType::BFloat16, {5000 - 2048}};
  before.write(0, {beside.data(), DType::Float32, {100}}).wait();
  tensor.write(0, whole(all)).wait();
  tensor.read(2048, rest).wait();
  EXPECT_EQ(std::memcmp(part.data(), all.data() + 4096, (5000 - 2048) * 2), 0);
  // A write that begins at the second granule leaves the first granule, and the tensor before, as they were.
  std::reverse(part.data(), part.data() + (5000 - 2048) * 2);
  tensor.write(2048, rest).wait();
  std::copy_n(part.data(), (5000 - 2048) * 2, all.data() + 4096);
  tensor.read(0, whole(again)).wait();
  EXPECT_TRUE(again == all);
  before.read(0, {beside_again.data(), DType::Float32, {100}}).wait();
  EXPECT_TRUE(beside_again == beside);
}

// A reader returns exactly the elements requested, although files are read from the beginning of a granule.
TEST(StagedTensorReader, BeginsAtAnyElement) {
  MemoryFileSystem files;
  const auto store = make_file_store(files, {.path = "/store", .folder_key = "KEY", .capacity_bytes = 1 << 20});
  FileTensor tensor(*store, DType::BFloat16, 5000);
  Memory all(10'000, 1);
  tensor.write(0, {all.data(), DType::BFloat16, {5000}}).wait();
  StagedTensorReader reader;
  for (const auto& [first, count] : {std::pair{0, 5000}, {0, 3}, {7, 5}, {2048, 9}, {2050, 100}, {2040, 20}, {4999, 1}}) {
    const ConstTensorView read = reader.read(tensor, first, count);
    ASSERT_EQ(read.elements(), count);
    EXPECT_EQ(std::memcmp(read.data, all.data() + 2 * first, static_cast<size_t>(2 * count)), 0) << first;
  }
}

TEST_F(FileStoreInFolder, WhoseThreadsCannotAllBeStartedIsAnError) {
  if (!test::threads_can_be_refused()) GTEST_SKIP() << "sanitizers need more address space than a limit would leave";
  EXPECT_EXIT(
      {
        test::refuse_threads_soon();
        try {
          make_file_store(real_file_system(), options(1 << 16, 8192, 1000));
        } catch (const std::system_error& error) {
          std::_Exit(error.code().value() == EAGAIN ? 7 : 8);
        }
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trivet::zero::offload
