#include "cli/launch/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/found_file.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

[[noreturn]] void refuse_log(const std::string& folder, const std::string& path, const std::string& why) {
  throw ConfigError(fmt::format("--enable_each_rank_log {}: {}: {}", printable(folder), printable(path, 400), why));
}

constexpr const char* kAnotherFolder = "; name a folder of your own";

Descriptor open_log_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) refuse_log(path, path, error.message());
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    if (const std::string why = why_others_may_change(status); !why.empty())
      refuse_log(path, path, "is a link that " + why + kAnotherFolder);
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fstat(folder.number(), &status) != 0) refuse_log(path, path, std::strerror(errno));
  // A group may share its logs: only this user can read the files.
  if ((status.st_mode & 002) == 0) status.st_mode &= ~static_cast<mode_t>(020);
  if (const std::string why = why_others_may_change(status); !why.empty()) refuse_log(path, path, why + kAnotherFolder);
  return folder;
}

// Empty: the launcher may write to this file.
std::string why_not_written(const struct stat& status) {
  if (S_ISLNK(status.st_mode)) return "is a link";
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  if (status.st_uid != ::geteuid()) return fmt::format("belongs to user {}", status.st_uid);
  return "";
}

// A new file: whoever has opened or linked the one that was there does not see what is written now.
Descriptor new_log(const Descriptor& folder, const std::string& name) {
  ::unlinkat(folder.number(), name.c_str(), 0);
  Descriptor file(::openat(folder.number(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file && ::fchmod(file.number(), 0600) != 0) file.reset();  // the umask may have cleared bits
  return file;
}

Descriptor log_of_earlier_start(const Descriptor& folder, const std::string& name, std::string& why) {
  Descriptor file(::openat(folder.number(), name.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.number(), &status) != 0) return {};
  why = why_not_written(status);
  if (why.empty() && status.st_nlink > 1) why = "has several names";
  if (why.empty() && ::fchmod(file.number(), 0600) != 0) return {};
  return file;
}

}  // namespace

Descriptor open_rank_log(const std::string& folder_path, int rank, const std::string& what, bool is_restart) {
  const std::string name = fmt::format("rank_{}.{}", rank, what), path = folder_path + "/" + name;
  const Descriptor folder = open_log_folder(folder_path);
  struct stat there {};
  const bool exists = ::fstatat(folder.number(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
  std::string why = exists ? why_not_written(there) : "";
  Descriptor file;
  if (why.empty()) file = exists && is_restart ? log_of_earlier_start(folder, name, why) : new_log(folder, name);
  if (!why.empty()) refuse_log(folder_path, path, why + "; remove it, or name another folder");
  if (!file) refuse_log(folder_path, path, std::strerror(errno));
  return file;
}

}  // namespace trivet::cli
