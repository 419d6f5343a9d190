#include "cli/launch/pid_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr int kAttempts = 5;  // another launcher may remove the folder that this one has just found

std::string variable(const comm::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw ConfigError(fmt::format("--save_pid: {}: {}; set XDG_RUNTIME_DIR to a folder that you own, with mode 700",
                                printable(path, 400), why));
}

Descriptor open_private(const std::string& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno == ENOENT) return folder;
  if (!folder) refuse(path, errno == ENOTDIR || errno == ELOOP ? "is not a folder" : std::strerror(errno));
  struct stat status {};
  ::fstat(folder.number(), &status);
  if (status.st_uid != ::geteuid()) refuse(path, fmt::format("belongs to user {}, not to you", status.st_uid));
  if ((status.st_mode & 077) != 0) refuse(path, fmt::format("other users may access it (mode {:o})", status.st_mode & 07777));
  return folder;
}

}  // namespace

PidFile::PidFile(const comm::Environment& environment) : name_(fmt::format("trivet-launch-{}.pids", ::getpid())) {
  folder_path_ = variable(environment, "XDG_RUNTIME_DIR");
  own_folder_ = folder_path_.empty();
  if (own_folder_) {
    const std::string temporary = variable(environment, "TMPDIR");
    folder_path_ = fmt::format("{}/trivet-{}", temporary.empty() ? "/tmp" : temporary, ::geteuid());
  }
  path_ = folder_path_ + "/" + name_;
  for (int attempt = 0; attempt < kAttempts && !file_; ++attempt) {
    if (own_folder_ && ::mkdir(folder_path_.c_str(), 0700) != 0 && errno != EEXIST) refuse(folder_path_, std::strerror(errno));
    folder_ = open_private(folder_path_);
    if (!folder_ && !own_folder_) refuse(folder_path_, std::strerror(ENOENT));
    if (!folder_) continue;
    file_ = Descriptor(::openat(folder_.number(), name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_ && errno == EEXIST) refuse(path_, "already exists, though no running launcher wrote it; remove it");
    if (!file_ && errno != ENOENT) refuse(path_, std::strerror(errno));
  }
  if (!file_) refuse(path_, "its folder keeps being removed");
}

PidFile::~PidFile() { remove(); }

std::string PidFile::add(int rank, int pid) const {
  const std::string line = fmt::format("{} {}\n", rank, pid);
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.number(), line.data() + done, line.size() - done);
    if (written < 0) return std::strerror(errno);
    done += written;
  }
  return "";
}

void PidFile::remove() const {
  ::unlinkat(folder_.number(), name_.c_str(), 0);
  if (own_folder_) ::rmdir(folder_path_.c_str());  // fails while another launcher's file is in it
}

}  // namespace trivet::cli
