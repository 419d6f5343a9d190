// A file system in memory that can simulate a loss of power, which takes everything that no fsync has made durable.
//
//   file:       durable bytes <--sync()-- bytes
//   directory:  durable entries <--sync_directory()-- entries, with every state in between
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/file_system.h"

namespace trivet::support {

enum class PowerLoss : uint8_t {
  DropAll,      // only what was synced is left
  KeepEntries,  // names and renames reached the disk, un-synced bytes did not: the empty file after a rename
  KeepBytes,    // bytes reached the disk, un-synced names did not
  Random        // each file keeps, loses or tears its un-synced bytes; each directory keeps a prefix of its un-synced changes
};

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  std::unique_ptr<WritableFile> create(const std::string& path, int64_t reserve_bytes) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  void create_directory(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  std::vector<DirectoryEntry> list(const std::string& path) override;
  EntryKind kind(const std::string& path) override;
  LockAttempt lock(const std::string& path, const std::string& holder) override;
  int64_t free_bytes(const std::string&) override { return limit_ - used_bytes(); }
  // Refuses `direct`, as a file system without O_DIRECT does.
  std::unique_ptr<ScratchFile> create_scratch(const std::string& path, int64_t bytes, bool direct) override;

  // Simulates a machine that loses its power and comes back. No file may be open.
  void lose_power(PowerLoss loss, uint64_t seed = 0);

  // From now on, writes beyond this many bytes in all files together fail with ENOSPC.
  void set_limit(int64_t bytes) { limit_ = bytes; }
  int64_t used_bytes() const;

  struct Node;
  using Entries = std::map<std::string, std::shared_ptr<Node>>;

 private:
  std::shared_ptr<Node> find(const std::string& path) const;  // null when missing
  Node& parent(const char* operation, const std::string& path) const;
  void changed(Node& directory);

  mutable std::mutex mutex_;
  std::shared_ptr<Node> root_;
  std::atomic<int64_t> limit_ = int64_t{1} << 40;
};

}  // namespace trivet::support
