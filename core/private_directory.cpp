#include "core/private_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"

namespace trivet {

namespace {

// A slash at the end would follow a link, and hide which directory is the parent.
std::string without_slashes_at_end(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string directory_above(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Whoever owns the parent, or may write to it without the sticky bit, can rename the directory and put another in its place.
std::string why_parent_is_unsafe(const std::string& parent) {
  struct stat status {};
  if (::lstat(parent.c_str(), &status) != 0) return "";  // mkdir says more
  if (S_ISLNK(status.st_mode)) return fmt::format("is in \"{}\", which is a link", parent);
  if (status.st_uid != 0 && status.st_uid != ::geteuid())
    return fmt::format("is in \"{}\", which belongs to user {}, who can replace it", parent, status.st_uid);
  if ((status.st_mode & 022) != 0 && (status.st_mode & S_ISVTX) == 0)
    return fmt::format("is in \"{}\", which has mode {:o}, so that others can replace it", parent, status.st_mode & 07777);
  return "";
}

bool is_this_users_alone(const struct stat& status) { return status.st_uid == ::geteuid() && (status.st_mode & 077) == 0; }

// They would hide which directory is the parent.
bool has_dots(const std::string& path) {
  const std::filesystem::path parts(path);
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part == "." || part == ".."; });
}

}  // namespace

bool HeldDirectory::is_in_place() const {
  struct stat held {
  }, named{};
  return ::fstat(descriptor_.number(), &held) == 0 && ::lstat(path_.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino && is_this_users_alone(named);
}

HeldDirectory make_private_directory(const std::string& given_path, const std::string& key) {
  const std::string path = without_slashes_at_end(given_path);
  const auto fail = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: \"{}\" {}; name another directory, or remove it", key, path, why));
  };
  if (has_dots(path)) fail("contains \".\" or \"..\"");
  if (const std::string why = why_parent_is_unsafe(directory_above(path)); !why.empty()) fail(why);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail(fmt::format("cannot be created: {}", std::strerror(errno)));
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) fail(fmt::format("is not a directory that can be opened: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(directory.number(), &status) != 0) fail(std::strerror(errno));
  if (status.st_uid != ::geteuid()) fail(fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid()));
  if ((status.st_mode & 077) != 0)
    fail(fmt::format("has mode {:o} instead of 700, so that others may use it", status.st_mode & 07777));
  return {path, std::move(directory)};
}

bool is_in_memory(const std::string& given_path, const std::string& key) {
  const std::string path = without_slashes_at_end(given_path), parent = directory_above(path);
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0 && ::statfs(parent.c_str(), &status) != 0)
    throw ConfigError(fmt::format("{}: \"{}\": there is no directory \"{}\"", key, path, parent));
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

}  // namespace trivet
