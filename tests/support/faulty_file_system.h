// A file system whose k-th call fails. Calls to the file system and to its files are counted together.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/file_system.h"

namespace trivet::support {

enum class Fault : uint8_t {
  None,
  Stop,           // the process is gone: this call and all later ones do nothing and throw Stopped
  StopMidWrite,   // like Stop, but a write first transfers half of its bytes
  NoSpace,        // ENOSPC, once
  DiskFull,       // ENOSPC, from this call on, for every call that needs space
  IoError,        // EIO, once
  ShortTransfer,  // one read or write transfers half of the bytes requested; other calls are not affected
  SlowWrites      // from this call on, each call that needs space takes 2 ms
};

// Thrown in place of the end of the process. It is not a std::exception, so that no error handler takes it for an error.
struct Stopped {};

class FaultyFileSystem : public FileSystem {
 public:
  // `call` counts from 1.
  explicit FaultyFileSystem(FileSystem& inner, Fault fault = Fault::None, int64_t call = 0)
      : inner_(inner), fault_(fault), call_(call) {}
  int64_t calls() const { return count_; }

  std::unique_ptr<WritableFile> create(const std::string& path, int64_t reserve_bytes) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  void create_directory(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  std::vector<DirectoryEntry> list(const std::string& path) override;
  EntryKind kind(const std::string& path) override;
  LockAttempt lock(const std::string& path, const std::string& holder) override;
  int64_t free_bytes(const std::string& path) override;
  std::unique_ptr<ScratchFile> create_scratch(const std::string& path, int64_t bytes, bool direct) override;

  // Counts a call and throws if it is the one that fails. Returns how many of `bytes` it may transfer.
  size_t enter(const char* operation, const std::string& path, bool needs_space, size_t bytes = 0);
  // True once a write was cut short by the end of the process.
  bool stopped_mid_write() const { return mid_write_; }

 private:
  FileSystem& inner_;
  Fault fault_;
  int64_t call_;
  std::atomic<int64_t> count_{0};
  std::atomic<bool> mid_write_{false};
};

}  // namespace trivet::support
