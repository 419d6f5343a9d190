// The lock of a directory of checkpoints: one job at a time writes there.
#pragma once

#include <memory>
#include <string>

#include "engine/checkpoint/store_directory.h"

namespace trivet::checkpoint {

class DirectoryLock {
 public:
  explicit DirectoryLock(StoreDirectory& directory) : directory_(directory) {}

  // Waits for lock_patience. A later start of a job takes the lock of an earlier one that gives no sign of life. Throws
  // CheckpointError naming the holder: Rendezvous for an earlier start of this job, otherwise CheckpointNotWritten.
  void take();
  // Throws CheckpointError (CheckpointNotWritten) if a later start has taken it.
  void require() const;
  void release() { lock_.reset(); }

 private:
  [[noreturn]] void give_up(const std::string& holder, const std::string& others) const;
  bool is_of_earlier_start(const std::string& holder) const;

  StoreDirectory& directory_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace trivet::checkpoint
