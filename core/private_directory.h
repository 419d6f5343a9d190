// A directory that no other user of the host can look into, in a place where all users may create files, such as /dev/shm.
#pragma once

#include <string>

namespace trivet {

// Creates the directory with mode 0700; its parent must exist. One that is there already must be a directory, not a link to
// one, belong to this user and have mode 0700. Throws ConfigError, which begins with `key`, if it does not.
void make_private_directory(const std::string& path, const std::string& key);

// Whether files below this path are in memory (tmpfs, ramfs). Throws ConfigError, which begins with `key`, if neither the path
// nor its parent exists.
bool is_in_memory(const std::string& path, const std::string& key);

}  // namespace trivet
