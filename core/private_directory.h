// A directory that no other user of the host can look into, in a place where all users may create files, such as /dev/shm.
#pragma once

#include <string>

namespace trivet {

// Creates the directory with mode 0700. Its parent must exist and belong to this user or root; if others may write to it, it
// must have the sticky bit. A directory that is there already must not be a link, must belong to this user and have mode 0700.
// Slashes at the end mean nothing. Throws ConfigError, which begins with `key`, if any of this is not so.
void make_private_directory(const std::string& path, const std::string& key);

// Whether files below this path are in memory (tmpfs, ramfs). Throws ConfigError, which begins with `key`, if neither the path
// nor its parent exists.
bool is_in_memory(const std::string& path, const std::string& key);

}  // namespace trivet
