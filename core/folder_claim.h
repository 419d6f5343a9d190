// Keeps a folder for one process that writes to it, so that two processes never mix their files there.
//
// The claim is a lock on the file `.trivet-lock` in the folder. It ends with the process, however that ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/file_system.h"

namespace trivet {

inline constexpr std::string_view kClaimName = ".trivet-lock";

class FolderClaim {
 public:
  // Tries to claim a folder that exists. Where the file system has no locks, every claim is granted. Throws FileError.
  FolderClaim(FileSystem& files, const std::string& folder);
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;
  ~FolderClaim();
  // Names the process that has claimed the folder before: "process 12 on host"; empty if the claim was granted.
  const std::string& other() const { return other_; }

 private:
  FileSystem& files_;
  std::string path_, other_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace trivet
