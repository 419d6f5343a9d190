// A rank's file of offloaded flat tensors (ZeRO-Infinity, Rajbhandari et al. 2021), and the threads that read and write it.
//
//   | tensor 0 ..... pad | tensor 1 .. pad | ...        each begins at a multiple of 4096 bytes
//
// A copy is cut into blocks; each is one system call of one thread, uncached (O_DIRECT) if the file system allows it. The
// space is reserved when the store is created, so that a full disk is noticed before the first step. The file has no name
// (ScratchFile): no other process can open it, and it disappears when the process ends, for whatever reason.
//
// Throws ConfigError if the folder cannot be used, and StorageError for all other failures of the system. The errors name the
// file, the bytes and the system's reason; an error during a copy is thrown by its wait(). Thread-safe except for
// allocate(). The destructor waits for copies in flight.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "core/file_system.h"
#include "zero/placement.h"

namespace trivet::zero::offload {

struct FileStoreOptions {
  std::string path;        // the file's path, if it had a name
  std::string folder_key;  // the config key of the folder, for messages
  int64_t capacity_bytes = 0;
  int64_t block_bytes = int64_t{1} << 20;  // rounded up to a multiple of 4096
  int threads = 8;                         // blocks in flight at once
};

class FileStore {
 public:
  virtual ~FileStore() = default;
  // Reserves this many bytes, which read as zero, and returns their offset.
  virtual int64_t allocate(int64_t bytes) = 0;
  // `offset` and the address are multiples of 4096. A write ends at a multiple of 4096 or at the end of what was allocated.
  virtual PendingCopy read(int64_t offset, void* to, int64_t bytes) = 0;
  virtual PendingCopy write(int64_t offset, const void* from, int64_t bytes) = 0;

  int64_t allocated_bytes() const { return allocated_bytes_; }
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }

 protected:
  int64_t allocated_bytes_ = 0;
  std::atomic<int64_t> bytes_read_{0}, bytes_written_{0};  // requested so far
};

// `files` must outlive the store. `on_cached` is called, once, if the file system refuses uncached transfers.
std::unique_ptr<FileStore> make_file_store(FileSystem& files, const FileStoreOptions& options,
                                           const std::function<void(const std::string&)>& on_cached = {});
// For the planner: counts bytes and moves nothing.
std::unique_ptr<FileStore> make_meta_file_store();

}  // namespace trivet::zero::offload
