#include "zero/offload/file_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/start_threads.h"

namespace trivet::zero::offload {
namespace {

constexpr int64_t kUnit = kDirectAlignment;

int64_t round_up(int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
int64_t round_down(int64_t bytes) { return bytes / kUnit * kUnit; }

class CopyInBlocks final : public PendingCopy::State {
 public:
  explicit CopyInBlocks(int64_t blocks) : left_(blocks) {}

  void wait() override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return left_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }
  void finish_block(std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    if (error && !error_) error_ = std::move(error);
    if (--left_ == 0) done_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t left_;
  std::exception_ptr error_;
};

struct Block {
  std::shared_ptr<CopyInBlocks> copy;  // the copy that this block is part of
  int64_t offset = 0;
  std::byte* to = nullptr;          // read
  const std::byte* from = nullptr;  // written
  int64_t bytes = 0;
};

class RealFileStore final : public FileStore {
 public:
  RealFileStore(FileSystem& files, const FileStoreOptions& options, const std::function<void(const std::string&)>& on_cached)
      : files_(files), options_(options), file_(create(on_cached)) {
    threads_ = start_threads(
        std::max(options_.threads, 1), [this](int) { run(); }, [this](int) { close(); });
  }
  ~RealFileStore() override {
    close();
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t allocate(int64_t bytes) override {
    const int64_t offset = allocated_bytes_;
    if (offset + round_up(bytes) > options_.capacity_bytes)
      throw std::logic_error(fmt::format("file store {}: {} bytes do not fit ({} of {} bytes used); the plan is too small",
                                         options_.path, bytes, offset, options_.capacity_bytes));
    allocated_bytes_ += round_up(bytes);
    return offset;
  }
  PendingCopy read(int64_t offset, void* to, int64_t bytes) override {
    bytes_read_ += bytes;
    return start({.offset = offset, .to = static_cast<std::byte*>(to), .bytes = bytes}, to);
  }
  PendingCopy write(int64_t offset, const void* from, int64_t bytes) override {
    bytes_written_ += bytes;
    return start({.offset = offset, .from = static_cast<const std::byte*>(from), .bytes = bytes}, from);
  }

 private:
  // The threads end when all requested copies are done.
  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
  }
  std::unique_ptr<ScratchFile> create(const std::function<void(const std::string&)>& on_cached) {
    try {
      try {
        return files_.create_scratch(options_.path, options_.capacity_bytes, true);
      } catch (const FileError& error) {
        if (error.error_number() != EINVAL) throw;
        auto file = files_.create_scratch(options_.path, options_.capacity_bytes, false);
        if (on_cached)
          on_cached(
              fmt::format("{}: the file system refuses uncached transfers (O_DIRECT); offloading goes through the "
                          "system's cache",
                          options_.path));
        return file;
      }
    } catch (const FileError& error) {
      refuse(error);
    }
  }
  // An error that the user can fix by naming another folder is a ConfigError.
  [[noreturn]] void refuse(const FileError& error) {
    const int number = error.error_number();
    const std::string what = fmt::format("{}: {}", options_.folder_key, error.what());
    if (number == ENOENT || number == ENOTDIR || number == EACCES || number == EPERM || number == EROFS)
      throw ConfigError(what + "; name a folder that exists and that this user may write to");
    throw StorageError(fmt::format("{}; this rank keeps {} bytes there{}", what, options_.capacity_bytes, room(number)));
  }
  std::string room(int error_number) const {
    if (error_number != ENOSPC && error_number != EDQUOT) return "";
    try {
      return fmt::format(", {} are free; free space, or name another folder",
                         files_.free_bytes(options_.path.substr(0, std::max<size_t>(options_.path.rfind('/'), 1))));
    } catch (const FileError&) {
      return "";
    }
  }

  PendingCopy start(Block whole, const void* address) {
    if (whole.bytes == 0) return {};
    const bool aligned = whole.offset % kUnit == 0 && reinterpret_cast<uintptr_t>(address) % static_cast<size_t>(kUnit) == 0;
    if (!aligned || whole.offset < 0 || whole.offset + round_up(whole.bytes) > allocated_bytes_)
      throw std::logic_error(
          fmt::format("file store {}: a transfer of {} bytes at {} to or from {} is not aligned, or not in "
                      "the {} bytes that were allocated",
                      options_.path, whole.bytes, whole.offset, fmt::ptr(address), allocated_bytes_));
    const int64_t block_bytes = round_up(std::max<int64_t>(options_.block_bytes, 1));
    const int64_t blocks = (whole.bytes + block_bytes - 1) / block_bytes;
    const auto copy = std::make_shared<CopyInBlocks>(blocks);
    {
      const std::scoped_lock lock(mutex_);
      for (int64_t done = 0; done < whole.bytes; done += block_bytes)
        queue_.push_back({copy, whole.offset + done, whole.to ? whole.to + done : nullptr,
                          whole.from ? whole.from + done : nullptr, std::min(block_bytes, whole.bytes - done)});
    }
    blocks == 1 ? wake_.notify_one() : wake_.notify_all();
    return PendingCopy(copy);
  }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Block block = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        move(block);
      } catch (...) {
        error = std::current_exception();
      }
      block.copy->finish_block(error);
    }
  }

  // A remainder of less than a unit at the end of a tensor goes through a buffer of one unit, padded with zeros in the file.
  void move(const Block& block) {
    const int64_t whole = file_->direct() ? round_down(block.bytes) : block.bytes, rest = block.bytes - whole;
    move_exactly(block, block.offset, block.to, block.from, whole);
    if (rest == 0) return;
    alignas(kUnit) std::byte unit[kUnit] = {};
    if (block.from) std::memcpy(unit, block.from + whole, static_cast<size_t>(rest));
    move_exactly(block, block.offset + whole, block.to ? unit : nullptr, block.from ? unit : nullptr, kUnit);
    if (block.to) std::memcpy(block.to + whole, unit, static_cast<size_t>(rest));
  }

  // The system may transfer less than requested and stop within a unit; the next call then starts at the beginning of that
  // unit.
  void move_exactly(const Block& block, int64_t offset, std::byte* to, const std::byte* from, int64_t bytes) {
    const int64_t unit = file_->direct() ? kUnit : 1;
    int without_progress = 0;
    for (int64_t done = 0; done < bytes;) {
      const auto left = static_cast<size_t>(bytes - done);
      size_t moved = 0;
      try {
        moved = to ? file_->read_some(offset + done, {to + done, left}) : file_->write_some(offset + done, {from + done, left});
      } catch (const FileError& error) {
        fail(block, to != nullptr, error.error_number());
      }
      const int64_t step =
          static_cast<int64_t>(moved) == bytes - done ? bytes - done : static_cast<int64_t>(moved) / unit * unit;
      without_progress = step == 0 ? without_progress + 1 : 0;
      if (moved == 0 || without_progress > 1) fail(block, to != nullptr, to ? ENODATA : EIO);
      done += step;
    }
  }

  [[noreturn]] void fail(const Block& block, bool reading, int error_number) const {
    throw StorageError(fmt::format("{}: {} of {} bytes at {}: {}{}", file_->path(), reading ? "read" : "write", block.bytes,
                                   block.offset, std::strerror(error_number), room(error_number)));
  }

  FileSystem& files_;
  FileStoreOptions options_;
  std::unique_ptr<ScratchFile> file_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Block> queue_;
  bool closing_ = false;
  std::vector<std::thread> threads_;  // last, because they use the members above
};

class MetaFileStore final : public FileStore {
 public:
  int64_t allocate(int64_t bytes) override {
    const int64_t offset = allocated_bytes_;
    allocated_bytes_ += round_up(bytes);
    return offset;
  }
  PendingCopy read(int64_t, void*, int64_t bytes) override {
    bytes_read_ += bytes;
    return {};
  }
  PendingCopy write(int64_t, const void*, int64_t bytes) override {
    bytes_written_ += bytes;
    return {};
  }
};

}  // namespace

std::unique_ptr<FileStore> make_file_store(FileSystem& files, const FileStoreOptions& options,
                                           const std::function<void(const std::string&)>& on_cached) {
  return std::make_unique<RealFileStore>(files, options, on_cached);
}

std::unique_ptr<FileStore> make_meta_file_store() { return std::make_unique<MetaFileStore>(); }

}  // namespace trivet::zero::offload
