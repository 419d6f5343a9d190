#include "core/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/descriptor.h"
#include "core/open_files.h"

namespace trivet {
namespace {

// Repeats a call that a signal interrupted; throws FileError if it fails for another reason.
template <typename Call>
auto checked(std::string_view operation, const std::string& path, Call&& call) {
  for (;;) {
    const auto result = call();
    if (result != -1) return result;
    if (errno != EINTR) throw FileError(operation, path, errno);
  }
}

Descriptor open_descriptor(std::string_view operation, const std::string& path, int flags) {
  return Descriptor(checked(operation, path, [&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0644); }));
}

EntryKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return EntryKind::File;
  return S_ISDIR(mode) ? EntryKind::Directory : EntryKind::Other;
}

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  void reserve(int64_t bytes) {
    if (bytes <= 0) return;
    if (::fallocate(file_.number(), FALLOC_FL_KEEP_SIZE, 0, bytes) == 0) return;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO) throw FileError("reserve", path_, errno);
  }
  size_t write_some(std::span<const std::byte> data) override {
    const auto written = checked("write", path_, [&] { return ::write(file_.number(), data.data(), data.size()); });
    if (written == 0 && !data.empty()) throw FileError("write", path_, EIO);  // nothing done: write() would loop forever
    return written;
  }
  // Not retried after an error: the system may have dropped the pages and would then report success.
  void sync() override {
    if (::fsync(file_.number()) != 0) throw FileError("fsync", path_, errno);
  }
  void close() override {
    if (::close(file_.release()) != 0) throw FileError("close", path_, errno);
  }

 private:
  Descriptor file_;
  std::string path_;
};

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(Descriptor file, std::string path, int64_t size)
      : file_(std::move(file)), path_(std::move(path)), size_(size) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  size_t read_some(int64_t offset, std::span<std::byte> out) const override {
    const auto count = checked("read", path_, [&] { return ::pread(file_.number(), out.data(), out.size(), offset); });
    return count;
  }

 private:
  Descriptor file_;
  std::string path_;
  int64_t size_;
};

class RealScratchFile final : public ScratchFile {
 public:
  RealScratchFile(Descriptor file, std::string path, bool direct)
      : file_(std::move(file)), path_(std::move(path)), direct_(direct) {}

  void reserve(int64_t bytes) {
    if (bytes <= 0) return;
    if (::fallocate(file_.number(), 0, 0, bytes) == 0) return;
    if (errno != EOPNOTSUPP) throw FileError("reserve", path_, errno);
    checked("truncate", path_, [&] { return ::ftruncate(file_.number(), bytes); });  // space is then taken as data is written
  }
  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }
  size_t read_some(int64_t offset, std::span<std::byte> out) const override {
    return checked("read", path_, [&] { return ::pread(file_.number(), out.data(), out.size(), offset); });
  }
  size_t write_some(int64_t offset, std::span<const std::byte> data) override {
    return checked("write", path_, [&] { return ::pwrite(file_.number(), data.data(), data.size(), offset); });
  }

 private:
  Descriptor file_;
  std::string path_;
  bool direct_;
};

// Opens a file without a name. Where the file system has no such files, it has a name for a moment, while it is still empty.
Descriptor open_scratch(const std::string& directory, const std::string& path, int flags) {
  const int unnamed = ::open(directory.c_str(), flags | O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0) return Descriptor(unnamed);
  if (errno != EOPNOTSUPP && errno != EISDIR) throw FileError("create", path, errno);
  const std::string named = fmt::format("{}.{}", path, ::getpid());
  Descriptor file(checked("create", named, [&] {
    return ::open(named.c_str(), flags | O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  }));
  if (::unlink(named.c_str()) != 0) throw FileError("remove", named, errno);
  return file;
}

std::string parent_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

// False if there is another file at `path` than this open one.
bool is_in_place(int file, const std::string& path) {
  struct stat own {
  }, there{};
  if (::fstat(file, &own) != 0 || ::lstat(path.c_str(), &there) != 0) return true;
  return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

class RealFileLock final : public FileLock {
 public:
  RealFileLock(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for other threads
    marker_ = std::jthread([this](const std::stop_token& stop) { mark(stop); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  bool holds() const override { return is_in_place(file_.number(), path_); }

 private:
  void mark(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      ::futimens(file_.number(), nullptr);
      changed_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
    }
  }

  Descriptor file_;  // flock belongs to the open file: closing releases it
  std::string path_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread marker_;
};

// A new file in the same directory has the time of its file system.
bool has_lapsed(int file, const std::string& path) {
  struct stat marked {
  }, now{};
  try {
    const Descriptor probe = open_scratch(parent_of(path), path + "-now", 0);
    if (::fstat(file, &marked) != 0 || ::fstat(probe.number(), &now) != 0) return false;
  } catch (const FileError&) {
    return false;
  }
  return now.st_mtim.tv_sec - marked.st_mtim.tv_sec > kLockLease.count();
}

std::string read_holder(int file) {
  std::string text(4096, '\0');
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  text.resize(count > 0 ? count : 0);
  return text;
}

// The text is for messages of others. Where it cannot be written, for example on a full file system, the lock holds all the
// same.
void write_holder(int file, const std::string& holder) {
  if (::ftruncate(file, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(file, holder.data(), holder.size(), 0);
}

class RealFileSystem final : public FileSystem {
 public:
  enum class Links : uint8_t { Refused, Followed };  // at the end of a path that is read
  explicit RealFileSystem(Links links) : follows_(links == Links::Followed) {}

  std::unique_ptr<WritableFile> create(const std::string& path, int64_t reserve_bytes) override {
    auto file = open_descriptor("create", path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    auto writable = std::make_unique<RealWritableFile>(std::move(file), path);
    writable->reserve(reserve_bytes);
    return writable;
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    const int flags = O_RDONLY | (follows_ ? 0 : O_NOFOLLOW) | O_NONBLOCK | O_CLOEXEC;  // opening a pipe must not block
    Descriptor file(checked("open", path, [&] {
      const int number = ::open(path.c_str(), flags);
      if (number < 0) check_open_files(path, errno);
      return number;
    }));
    struct stat status {};
    checked("stat", path, [&] { return ::fstat(file.number(), &status); });
    if (S_ISDIR(status.st_mode)) throw FileError("open", path, EISDIR);
    if (!S_ISREG(status.st_mode))
      throw FileError("open", path, EINVAL, "is a pipe, a socket or a device; put the file itself in its place");
    return std::make_unique<RealReadableFile>(std::move(file), path, status.st_size);
  }

  void create_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return;
    const int error = errno;
    if (error != EEXIST) throw FileError("create directory", path, error);
    if (kind(path + "/.") != EntryKind::Directory)
      throw FileError("create directory", path, error,
                      "is a file, or a link to what is none; remove it, or give another directory");
  }

  void sync_directory(const std::string& path) override {
    const auto directory = open_descriptor("open directory", path, O_RDONLY | O_DIRECTORY);
    if (::fsync(directory.number()) != 0) throw FileError("fsync directory", path, errno);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw FileError("rename " + from + " to", to, errno);
  }

  void remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0) throw FileError("remove", path, errno);
  }

  std::vector<DirectoryEntry> list(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
    if (!directory) {
      check_open_files(path, errno);
      throw FileError("list", path, errno);
    }
    std::vector<DirectoryEntry> entries;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(directory.get());
      if (!entry && errno != 0) throw FileError("list", path, errno);
      if (!entry) break;
      const std::string name = entry->d_name;
      if (name != "." && name != "..") entries.push_back({name, kind(path + "/" + name)});
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  EntryKind kind(const std::string& path) override {
    struct stat status {};
    if ((follows_ ? ::stat : ::lstat)(path.c_str(), &status) == 0) return kind_of(status.st_mode);
    if (errno == ENOENT || errno == ENOTDIR) return EntryKind::Missing;
    throw FileError("stat", path, errno);
  }

  LockAttempt lock(const std::string& path, const std::string& holder) override {
    for (;;) {
      auto file = open_descriptor("open lock", path, O_RDWR | O_CREAT | O_NOFOLLOW);
      if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return {nullptr, read_holder(file.number()), has_lapsed(file.number(), path)};
        throw FileError("lock", path, errno);
      }
      if (!is_in_place(file.number(), path)) continue;  // removed meanwhile
      write_holder(file.number(), holder);
      return {std::make_unique<RealFileLock>(std::move(file), path), holder};
    }
  }

  std::unique_ptr<ScratchFile> create_scratch(const std::string& path, int64_t bytes, bool direct) override {
    auto file = std::make_unique<RealScratchFile>(open_scratch(parent_of(path), path, direct ? O_DIRECT : 0), path, direct);
    file->reserve(bytes);
    return file;
  }

  int64_t free_bytes(const std::string& path) override {
    struct statvfs status {};
    checked("statvfs", path, [&] { return ::statvfs(path.c_str(), &status); });
    if (status.f_blocks == 0) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  }

 private:
  bool follows_;
};

}  // namespace

FileError::FileError(std::string_view operation, std::string path, int error_number, std::string_view reason)
    : std::runtime_error(
          fmt::format("{} {}: {}", operation, path, reason.empty() ? std::strerror(error_number) : std::string(reason))),
      path_(std::move(path)),
      error_number_(error_number) {}

void ReadableFile::read_exactly(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const size_t count = read_some(offset, out);
    if (count == 0) throw FileError(fmt::format("read past the end, byte {} of", offset), path(), ENODATA);
    offset += static_cast<int64_t>(count);
    out = out.subspan(count);
  }
}

FileSystem& real_file_system() {
  static RealFileSystem files(RealFileSystem::Links::Refused);
  return files;
}

FileSystem& file_system_with_links() {
  static RealFileSystem files(RealFileSystem::Links::Followed);
  return files;
}

void create_directories(FileSystem& files, const std::string& path) {
  if (files.kind(path + "/.") == EntryKind::Directory) return;  // "/.": the user's own link to a directory is followed
  const std::string parent = parent_of(path);
  create_directories(files, parent);
  files.create_directory(path);
  files.sync_directory(parent);
}

void remove_tree(FileSystem& files, const std::string& path) {
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string child = path + "/" + entry.name;
    if (entry.kind == EntryKind::Directory)
      remove_tree(files, child);
    else
      files.remove(child);
  }
  files.remove(path);
}

std::string read_text(FileSystem& files, const std::string& path, int64_t limit_bytes) {
  const auto file = files.open(path);
  if (file->size() > limit_bytes)
    throw FileError("read", path, EFBIG, fmt::format("has {} bytes, and at most {} are accepted", file->size(), limit_bytes));
  std::string text(file->size(), '\0');
  file->read_exactly(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(FileSystem& files, const std::string& path, std::string_view text) {
  const auto file = files.create(path, 0);
  file->write(text);
  file->sync();
  file->close();
}

}  // namespace trivet
