// --save_pid: a file with a line "RANK PID" for each rank, which exists while the job runs.
//
// The file is in a folder that only this user can write to: $XDG_RUNTIME_DIR, else trivet-UID in $TMPDIR or /tmp, which is
// created with mode 700. trivet-UID may also hold the user's secret (comm/user_secret.h), so it is removed only if it is empty.
// A folder or file of that name that belongs to somebody else, or a symbolic link, is refused and not followed.
#pragma once

#include <string>

#include "comm/world.h"
#include "core/descriptor.h"

namespace trivet::cli {

class PidFile {
 public:
  // Throws ConfigError that names the file or folder.
  explicit PidFile(const comm::Environment& environment);
  ~PidFile();
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;

  const std::string& path() const { return path_; }
  // Returns an empty text, or why the line could not be written.
  std::string add(int rank, int pid) const;
  // Removes the file, and trivet-UID if nothing else is in it. May be called by the launcher and its guardian.
  void remove() const;

 private:
  std::string folder_path_, name_, path_;
  bool own_folder_ = false;  // not $XDG_RUNTIME_DIR
  Descriptor folder_, file_;
};

}  // namespace trivet::cli
