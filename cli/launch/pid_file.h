// --save_pid: a file with a line "RANK PID" for each rank, there while the job runs.
//
// It is in a folder that only this user can write: $XDG_RUNTIME_DIR, else trivet-UID in $TMPDIR or /tmp, which is made with
// mode 700. That one may hold the user's secret as well (comm/user_secret.h) and is removed only while it is empty. A folder or
// file of that name that somebody else has put there, or a symbolic link, is refused and not followed.
#pragma once

#include <string>

#include "comm/descriptor.h"
#include "comm/world.h"

namespace trivet::cli {

class PidFile {
 public:
  // Throws ConfigError with the file or folder.
  explicit PidFile(const comm::Environment& environment);
  ~PidFile();
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;

  const std::string& path() const { return path_; }
  // Empty, or why the line could not be written.
  std::string add(int rank, int pid) const;
  // Removes it, and trivet-UID if nothing else is in it. May be called by the launcher and its guardian.
  void remove() const;

 private:
  std::string folder_path_, name_, path_;
  bool own_folder_ = false;  // not $XDG_RUNTIME_DIR
  comm::Descriptor folder_, file_;
};

}  // namespace trivet::cli
