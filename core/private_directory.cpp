#include "core/private_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/descriptor.h"
#include "core/error.h"

namespace trivet {

void make_private_directory(const std::string& path, const std::string& key) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: \"{}\" {}; name another directory, or remove it", key, path, why));
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail(fmt::format("cannot be created: {}", std::strerror(errno)));
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) fail(fmt::format("is not a directory that can be opened: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(directory.number(), &status) != 0) fail(std::strerror(errno));
  if (status.st_uid != ::geteuid()) fail(fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid()));
  if ((status.st_mode & 077) != 0)
    fail(fmt::format("has mode {:o} instead of 700, so that others may use it", status.st_mode & 07777));
}

bool is_in_memory(const std::string& path, const std::string& key) {
  struct statfs status {};
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (::statfs(path.c_str(), &status) != 0 && ::statfs(parent.empty() ? "." : parent.c_str(), &status) != 0)
    throw ConfigError(fmt::format("{}: \"{}\": there is no directory \"{}\"", key, path, parent));
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

}  // namespace trivet
