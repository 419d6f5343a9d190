#include "comm/user_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

constexpr size_t kBytes = 32;
constexpr int kAttempts = 100;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw ConfigError(
      fmt::format("{}: {}; it should hold this user's secret for jobs on this host: remove it, or set "
                  "TRIVET_SECRET_FILE to the same file on all ranks",
                  escape_control(path), why));
}

// Returns no descriptor if somebody has removed the directory in the meantime: a launcher that ends removes it if it is empty
// (pid_file.h).
Descriptor open_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    fail(path, fmt::format("cannot be created: {}", std::strerror(errno)));
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOENT) return directory;
  if (!directory) fail(path, fmt::format("is not a directory that can be opened: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(directory.number(), &status) != 0) fail(path, std::strerror(errno));
  if (status.st_uid != ::geteuid()) fail(path, fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid()));
  if ((status.st_mode & 077) != 0)
    fail(path, fmt::format("has mode {:o} instead of 700, so that others may use it", status.st_mode & 0777));
  return directory;
}

bool write_whole(int descriptor, const std::string& bytes) {
  return ::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// Leaves the file of another rank alone if that rank was faster. False if the directory has been removed in the meantime.
bool make_secret(const Descriptor& directory, const std::string& path) {
  const std::string draft = ".secret-" + hexadecimal(random_bytes(8));
  const Descriptor file(
      ::openat(directory.number(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file && errno == ENOENT) return false;
  if (!file) fail(path, fmt::format("cannot be created: {}", std::strerror(errno)));
  const bool written = ::fchmod(file.number(), 0600) == 0 &&  // the umask may have cleared bits
                       write_whole(file.number(), random_bytes(kBytes));
  const bool linked =
      written && (::linkat(directory.number(), draft.c_str(), directory.number(), "secret", 0) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlinkat(directory.number(), draft.c_str(), 0);
  if (!linked) fail(path, fmt::format("cannot be written: {}", std::strerror(error)));
  return true;
}

}  // namespace

std::string user_secret_directory(const std::string& runtime_directory) {
  struct stat status {};
  const bool mine = runtime_directory.starts_with('/') && ::stat(runtime_directory.c_str(), &status) == 0 &&
                    S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
  return mine ? runtime_directory + "/trivet" : fmt::format("/tmp/trivet-{}", ::geteuid());
}

Secret user_secret(const std::string& directory_path) {
  const std::string path = directory_path + "/secret";
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Descriptor directory = open_directory(directory_path);
    if (!directory) continue;
    const bool is_there = ::faccessat(directory.number(), "secret", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there || make_secret(directory, path)) return secret_from_file(path, path, Links::Refused);
  }
  fail(directory_path, "is removed repeatedly");
}

}  // namespace trivet::comm
