// File access, passed in as a dependency. Everything that must survive a crash is written through it, so that tests can make
// the k-th call fail, transfer less or stop the process, and can simulate a power loss.
//
// Each virtual function is one system call (or behaves like one). A failed call throws FileError; only EINTR is retried.
// write_some and read_some may transfer less than requested, as system calls may; write and read_exactly loop. Written data is
// durable after sync() of the file and sync_directory() of each directory whose entries changed. A FileSystem and a
// ReadableFile are thread-safe; a WritableFile may be used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace trivet {

class FileError : public std::runtime_error {
 public:
  // `reason`: what the error means here; empty: the system's words for its number.
  FileError(std::string_view operation, std::string path, int error_number, std::string_view reason = "");
  const std::string& path() const { return path_; }
  int error_number() const { return error_number_; }

 private:
  std::string path_;
  int error_number_;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; data that was not synced may be lost
  virtual size_t write_some(std::span<const std::byte> data) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;

  void write(std::span<const std::byte> data) {
    while (!data.empty()) data = data.subspan(write_some(data));
  }
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;                                              // when it was opened
  virtual size_t read_some(int64_t offset, std::span<std::byte> out) const = 0;  // 0: the end

  // Throws FileError when the file ends before `out` is full.
  void read_exactly(int64_t offset, std::span<std::byte> out) const;
};

// Addresses, offsets and sizes of uncached transfers are multiples of this.
inline constexpr int64_t kDirectAlignment = 4096;

// A file that keeps data while the process lives. It has no name, so nobody else can open it, and the system frees it when it
// is closed or the process ends, for whatever reason. Thread-safe.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  virtual const std::string& path() const = 0;  // the path it would have if it had a name; for messages
  virtual bool direct() const = 0;              // transfers bypass the system's page cache
  virtual size_t read_some(int64_t offset, std::span<std::byte> out) const = 0;  // 0: the end
  virtual size_t write_some(int64_t offset, std::span<const std::byte> data) = 0;
};

// Held until destroyed; the system releases it when the process dies. A holder marks the file every second while it runs.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // False if the file was removed and somebody else has made, and locked, another one in its place.
  virtual bool holds() const { return true; }
};

// A holder that has not marked its file for so long was stopped, or does not reach it any more: its lease has lapsed.
inline constexpr std::chrono::seconds kLockLease{5};

struct LockAttempt {
  std::unique_ptr<FileLock> lock;  // null if somebody else holds it
  std::string holder;              // the holder's own text
  bool has_lapsed = false;         // the holder's lease; what is told by the clock of the file system, which all hosts share
};

enum class EntryKind : uint8_t { Missing, File, Directory, Other };  // Other: a link, a pipe, a device; never followed

struct DirectoryEntry {
  std::string name;
  EntryKind kind;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates an empty file, replacing one of that name. Reserves space for `reserve_bytes` where the file system supports it.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, int64_t reserve_bytes) = 0;
  // Opens a regular file. Fails if the last component of `path` is a symbolic link.
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  virtual void create_directory(const std::string& path) = 0;  // its parent must exist; does nothing if it exists already
  virtual void sync_directory(const std::string& path) = 0;
  // Atomic. Replaces an existing file at `to`; an existing directory is an error unless it is empty.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;                       // a file, a link or an empty directory
  virtual std::vector<DirectoryEntry> list(const std::string& path) = 0;  // sorted by name
  virtual EntryKind kind(const std::string& path) = 0;
  // Takes an exclusive lock on the file `path`, creating it if needed, and writes `holder` into it if there is room.
  // Never waits. To take a lock although somebody else holds it, remove the file first.
  virtual LockAttempt lock(const std::string& path, const std::string& holder) = 0;
  // The largest number if the file system has no size of its own, such as ramfs.
  virtual int64_t free_bytes(const std::string& path) = 0;
  // Creates a file of `bytes` zeros in the directory of `path`, and reserves its space where the file system supports it. With
  // `direct`, transfers are uncached (O_DIRECT); throws FileError EINVAL where the file system refuses that.
  virtual std::unique_ptr<ScratchFile> create_scratch(const std::string& path, int64_t bytes, bool direct) = 0;
};

FileSystem& real_file_system();
// The same, but links at the ends of paths that are read or asked for are followed: for models that a user names, such as one
// in the cache of Hugging Face's hub, which consists of links.
FileSystem& file_system_with_links();

// Creates the directory and any missing parents; each new one is durable when this returns.
void create_directories(FileSystem& files, const std::string& path);
// Removes the directory and everything in it; links are removed, not followed.
void remove_tree(FileSystem& files, const std::string& path);
// Reads a file of at most `limit_bytes`; throws FileError EFBIG if it is larger.
std::string read_text(FileSystem& files, const std::string& path, int64_t limit_bytes);
// Writes, syncs and closes the file; does not sync the directory.
void write_text(FileSystem& files, const std::string& path, std::string_view text);

}  // namespace trivet
