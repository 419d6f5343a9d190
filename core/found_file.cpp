#include "core/found_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/printable.h"

namespace trivet {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 8;
constexpr mode_t kOthersMayWrite = 022;

FoundFile refused(const std::string& why) { return {{}, why}; }

std::string system_says(int error) { return std::string("cannot be read: ") + std::strerror(error); }

// Nothing was found, as far as this user may see.
bool is_not_there(int error) { return error == ENOENT || error == ENOTDIR || error == EACCES; }

// Where the link in this directory leads to; empty if it cannot be read.
fs::path target_of(const Descriptor& folder, const std::string& name) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlinkat(folder.number(), name.c_str(), target.data(), target.size());
  if (size <= 0 || size == static_cast<ssize_t>(target.size())) return {};
  return std::string(target.data(), static_cast<size_t>(size));
}

FoundFile open_regular(const Descriptor& folder, const std::string& name, bool others_may_add_names, int64_t most_bytes) {
  Descriptor file(::openat(folder.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.number(), &status) != 0) return refused(system_says(errno));
  if (!S_ISREG(status.st_mode)) return refused("is not a regular file");
  if (const std::string why = why_others_may_change(status); !why.empty()) return refused(why);
  if (others_may_add_names && status.st_nlink > 1)
    return refused("has several names, and others may have given it this one (ln)");
  if (status.st_size > most_bytes)
    return refused(fmt::format("has {} bytes; at most {} are accepted", status.st_size, most_bytes));
  return {std::move(file), ""};
}

// Returns why others could lead a link with this target elsewhere, by what they may change in the folders on its path.
std::string why_target_is_not_safe(const fs::path& folder_path, const fs::path& target) {
  fs::path at = target.is_absolute() ? fs::path() : folder_path;
  for (const fs::path& part : target.parent_path()) {
    at /= part;
    struct stat status {};
    for (const auto look : {::lstat, ::stat}) {
      if (look(at.c_str(), &status) != 0) break;
      if (const std::string why = why_others_may_change(status); !why.empty())
        return fmt::format("leads through {}, which {}", printable(at.string(), 400), why);
    }
  }
  return "";
}

FoundFile open_found(const fs::path& path, int64_t most_bytes, int links_left) {
  const std::string name = path.filename(), folder_name = path.parent_path().empty() ? "." : path.parent_path().string();
  const Descriptor folder(::open(folder_name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat of_folder {
  }, named{};
  if (!folder || name.empty() || ::fstat(folder.number(), &of_folder) != 0 ||
      ::fstatat(folder.number(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0)
    return is_not_there(errno) ? FoundFile{} : refused(system_says(errno));
  if (const std::string why = why_others_may_change(of_folder); !why.empty())
    return refused(fmt::format("is in {}, which {}", printable(folder_name, 400), why));
  if (!S_ISLNK(named.st_mode)) return open_regular(folder, name, (of_folder.st_mode & kOthersMayWrite) != 0, most_bytes);
  if (const std::string why = why_others_may_change(named); !why.empty()) return refused("is a link that " + why);
  const fs::path written = target_of(folder, name), target = fs::path(folder_name) / written;  // an absolute one stands alone
  if (links_left == 0 || written.empty()) return refused("is a link that leads nowhere, or over too many links");
  if (const std::string why = why_target_is_not_safe(folder_name, written); !why.empty())
    return refused("is a link that " + why);
  FoundFile found = open_found(target, most_bytes, links_left - 1);
  if (!found.file && found.refusal.empty()) found.refusal = "is not there";
  if (!found.refusal.empty() && !found.refusal.starts_with("is a link"))
    found.refusal = fmt::format("is a link to {}, which {}", printable(target.string(), 400), found.refusal);
  return found;
}

}  // namespace

std::string why_others_may_change(const struct stat& status, uid_t trusted) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid() && status.st_uid != trusted)
    return fmt::format("belongs to user {}", status.st_uid);
  const bool is_sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if (S_ISLNK(status.st_mode) || is_sticky || (status.st_mode & kOthersMayWrite) == 0) return "";
  return fmt::format("has mode {:o}, so that others may write to it", status.st_mode & 07777);
}

FoundFile open_found_file(const std::string& path, int64_t most_bytes) { return open_found(path, most_bytes, kMostLinks); }

FoundText read_found_file(const std::string& path, std::string_view advice, std::string_view named_by) {
  const auto fail = [&](const std::string& why) {
    if (!named_by.empty())
      throw ConfigError(
          fmt::format("{}: {}: {}; name a regular file that nobody but you and root can change (chown, chmod go-w of it and of "
                      "its directory), or {}",
                      named_by, printable(path, 400), why, advice));
    throw ConfigError(
        fmt::format("{}: {}; it was found and not named, so it is only used if nobody but you and root can "
                    "change it: remove it, or take it and its directory from others (chown, chmod go-w), or {}",
                    printable(path, 400), why, advice));
  };
  const FoundFile found = open_found_file(path);
  if (!found.refusal.empty()) fail(found.refusal);
  if (!found.file) return {};
  std::string text(static_cast<size_t>(kMostBytesOfAFoundFile) + 1, '\0');
  size_t size = 0;
  for (ssize_t got = 1; got != 0 && size < text.size();) {
    got = ::read(found.file.number(), text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) fail(system_says(errno));
    if (got > 0) size += static_cast<size_t>(got);
  }
  if (size == text.size()) fail(fmt::format("is longer than {} bytes, the most that are accepted", kMostBytesOfAFoundFile));
  text.resize(size);
  return {true, std::move(text)};
}

}  // namespace trivet
