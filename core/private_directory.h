// A directory that no other user of the host can look into, in a place where all users may create files, such as /dev/shm.
#pragma once

#include <string>
#include <utility>

#include "core/descriptor.h"

namespace trivet {

// A directory that is kept open, so that it can be told from another one that has taken its place.
class HeldDirectory {
 public:
  HeldDirectory(std::string path, Descriptor descriptor) : path_(std::move(path)), descriptor_(std::move(descriptor)) {}
  // Checks whether the path still names this directory, and it still belongs to this user alone. It may have been
  // removed, and in /dev/shm anyone may then create another one with its name.
  bool is_in_place() const;

 private:
  std::string path_;
  Descriptor descriptor_;
};

// Creates the directory with mode 0700. Its parent must exist, must not be a link, and must belong to this user or root; if
// others may write to it, it must have the sticky bit. A directory that is there already must not be a link, must belong to
// this user and have mode 0700. The path may not contain "." or "..". Slashes at the end mean nothing. Throws ConfigError,
// which begins with `key`, if any of this is not so.
HeldDirectory make_private_directory(const std::string& path, const std::string& key);

// Checks whether files below this path are in memory (tmpfs, ramfs). Throws ConfigError, which begins with `key`, if
// neither the path nor its parent exists.
bool is_in_memory(const std::string& path, const std::string& key);

}  // namespace trivet
