// Files as a dependency: everything that must survive a crash is written through here, so that tests can fail, cut short or
// stop the k-th call, or lose power.
//
// Each virtual function is one call of the system (or behaves like one). A failed call throws FileError; nothing is retried but
// EINTR. write_some and read_some may do less than asked, as the system may; write and read_exactly loop.
// What is written is durable after sync() of the file and sync_directory() of each directory whose entries changed.
// Thread-safe: a FileSystem and a ReadableFile. One thread at a time: a WritableFile.
#pragma once

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
  FileError(std::string_view operation, std::string path, int error_number);
  const std::string& path() const { return path_; }
  int error_number() const { return error_number_; }

 private:
  std::string path_;
  int error_number_;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; what was not synced may be lost
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

// Addresses, offsets and sizes of uncached transfers are multiples of it.
inline constexpr int64_t kDirectAlignment = 4096;

// A file that keeps data while the process lives. It has no name: nobody else can open it, and the system frees it when it is
// closed or the process dies, however that ends. Thread-safe.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  virtual const std::string& path() const = 0;  // where it would be if it had its name; for messages
  virtual bool direct() const = 0;              // transfers do not go through the system's cache
  virtual size_t read_some(int64_t offset, std::span<std::byte> out) const = 0;  // 0: the end
  virtual size_t write_some(int64_t offset, std::span<const std::byte> data) = 0;
};

// Held until destroyed; the system releases it when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct LockAttempt {
  std::unique_ptr<FileLock> lock;  // null: somebody else holds it
  std::string holder;              // what the holder wrote
};

enum class EntryKind : uint8_t { Missing, File, Directory, Other };  // Other: a link, a pipe, a device; never followed

struct DirectoryEntry {
  std::string name;
  EntryKind kind;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new empty file; one of that name is replaced. Space for `reserve_bytes` is taken now where the file system can.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, int64_t reserve_bytes) = 0;
  // Regular files only; a link in the last place of `path` is refused.
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  virtual void create_directory(const std::string& path) = 0;  // its parent must exist; nothing happens if it is there
  virtual void sync_directory(const std::string& path) = 0;
  // Atomic. A file in the way is replaced; a directory in the way is an error unless empty.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;                       // a file, a link or an empty directory
  virtual std::vector<DirectoryEntry> list(const std::string& path) = 0;  // sorted by name
  virtual EntryKind kind(const std::string& path) = 0;
  // An exclusive lock on the file `path`, which is created if need be; the holder's text is `holder`. Never waits.
  virtual LockAttempt lock(const std::string& path, const std::string& holder) = 0;
  virtual int64_t free_bytes(const std::string& path) = 0;
  // A file of `bytes` zeros in the directory of `path`; its space is taken now where the file system can. `direct`: uncached
  // (O_DIRECT); FileError EINVAL where the file system refuses that.
  virtual std::unique_ptr<ScratchFile> create_scratch(const std::string& path, int64_t bytes, bool direct) = 0;
};

FileSystem& real_file_system();

// The directory and those above it, where they are missing; each new one is durable when this returns.
void create_directories(FileSystem& files, const std::string& path);
// The directory and all that is in it; links are removed, not followed.
void remove_tree(FileSystem& files, const std::string& path);
// All of a file that has at most `limit_bytes`; a larger one is FileError EFBIG.
std::string read_text(FileSystem& files, const std::string& path, int64_t limit_bytes);
// Written, synced and closed; the directory is not synced.
void write_text(FileSystem& files, const std::string& path, std::string_view text);

}  // namespace trivet
