#include "cli/launch/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/found_file.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

[[noreturn]] void refuse_log(const std::string& folder, const std::string& path, const std::string& why) {
  throw ConfigError(fmt::format("--enable_each_rank_log {}: {}: {}", printable(folder), printable(path, 400), why));
}

constexpr const char* kAnotherFolder = "; name a folder of your own";
constexpr const char* kRemoveIt = "; remove it, or name another folder";

// Marks a file as a log of a launcher.
constexpr mode_t kModeOfLogs = S_ISVTX | 0600;

// Creates the folder and those above it, none of which others may write to, whatever the umask.
void create_log_folder(const std::string& path) {
  std::string made;
  for (const auto& part : std::filesystem::path(path)) {
    made = made.empty() ? part.string() : (std::filesystem::path(made) / part).string();
    if (::mkdir(made.c_str(), 0755) == 0 || errno == EEXIST || errno == EISDIR) continue;
    struct stat status {};
    const int error = errno;
    if (::stat(made.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) refuse_log(path, path, std::strerror(error));
  }
}

Descriptor open_log_folder(const std::string& path) {
  create_log_folder(path);
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
  if (status.st_size > 0 && (status.st_mode & S_ISVTX) == 0) return "exists, and was not written by a launcher";
  return "";
}

// Not every file system keeps the mark.
bool set_mode_of_log(const Descriptor& file) {
  return ::fchmod(file.number(), kModeOfLogs) == 0 || ::fchmod(file.number(), 0600) == 0;
}

// A new file: whoever has opened or linked the one that was there does not see what is written now.
Descriptor new_log(const Descriptor& folder, const std::string& name) {
  ::unlinkat(folder.number(), name.c_str(), 0);
  Descriptor file(::openat(folder.number(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file && !set_mode_of_log(file)) file.reset();  // the umask may have cleared bits
  return file;
}

Descriptor log_of_earlier_start(const Descriptor& folder, const std::string& name, std::string& why) {
  Descriptor file(::openat(folder.number(), name.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.number(), &status) != 0) return {};
  why = why_not_written(status);
  if (why.empty() && status.st_nlink > 1) why = "has several names";
  if (why.empty() && !set_mode_of_log(file)) return {};
  return file;
}

std::string name_of_log(int rank, const std::string& what) { return fmt::format("rank_{}.{}", rank, what); }

// "--hostfile=logs/rank_0.out" and "data.train=logs/rank_0.out", too.
std::vector<NamedFile> files_in_words(const std::vector<std::string>& words) {
  std::vector<NamedFile> files;
  for (const std::string& word : words) {
    files.push_back({"the program", word});
    for (size_t at = word.find('='); at != std::string::npos; at = word.find('=', at + 1))
      files.push_back({"the program", word.substr(at + 1)});
  }
  return files;
}

}  // namespace

std::vector<std::string> paths_of_rank_logs(const std::string& folder, const std::vector<int>& ranks) {
  std::vector<std::string> paths;
  for (const int rank : ranks)
    for (const char* what : {"out", "err"}) paths.push_back(folder + "/" + name_of_log(rank, what));
  return paths;
}

void check_rank_logs(const std::string& folder, const std::vector<int>& ranks, const std::vector<NamedFile>& inputs,
                     const std::vector<std::string>& program) {
  std::vector<NamedFile> read = files_in_words(program);
  read.insert(read.end(), inputs.begin(), inputs.end());
  std::map<std::pair<dev_t, ino_t>, std::string> names;
  struct stat status {};
  for (const NamedFile& file : read)
    if (::stat(file.path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
      names.emplace(std::pair{status.st_dev, status.st_ino}, file.name);
  for (const std::string& path : paths_of_rank_logs(folder, ranks)) {
    if (::lstat(path.c_str(), &status) != 0) continue;
    if (const auto input = names.find({status.st_dev, status.st_ino}); input != names.end())
      refuse_log(folder, path, fmt::format("is read by this job ({}), and would be replaced{}", input->second, kAnotherFolder));
    if (const std::string why = why_not_written(status); !why.empty()) refuse_log(folder, path, why + kRemoveIt);
  }
}

Descriptor open_rank_log(const std::string& folder_path, int rank, const std::string& what, bool is_restart) {
  const std::string name = name_of_log(rank, what), path = folder_path + "/" + name;
  const Descriptor folder = open_log_folder(folder_path);
  struct stat there {};
  const bool exists = ::fstatat(folder.number(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
  std::string why = exists ? why_not_written(there) : "";
  Descriptor file;
  if (why.empty()) file = exists && is_restart ? log_of_earlier_start(folder, name, why) : new_log(folder, name);
  if (!why.empty()) refuse_log(folder_path, path, why + kRemoveIt);
  if (!file) refuse_log(folder_path, path, std::strerror(errno));
  return file;
}

std::string lines_that_may_be_lost(const std::string& folder) {
  constexpr unsigned long kOneWrite = 64 << 10;  // a rank's buffer may need more than the few blocks that are left
  struct statvfs disk {};
  if (folder.empty() || ::statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0 ||
      disk.f_bavail * disk.f_frsize >= kOneWrite)
    return "";
  return fmt::format("--enable_each_rank_log {}: its disk is full, so lines of the ranks may be missing from their logs",
                     printable(folder));
}

}  // namespace trivet::cli
