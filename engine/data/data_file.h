// A file that is read piece by piece while a run goes on, and that must stay as it is meanwhile.
//
// Pieces are copied out of the system's cache, not mapped: a mapped file that somebody cuts short ends the process with SIGBUS,
// a copy that comes out short is an error with the name of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trivet::data {

class DataFile {
 public:
  // Throws DataError: missing, no regular file, unreadable, empty.
  explicit DataFile(const std::string& path);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened

  // Fills `out` with what stands at `offset`. Throws DataError: exit 18 when the size of the file has changed since it was
  // opened. Thread-safe.
  void read(int64_t offset, std::span<std::byte> out) const;
  // At most `bytes` bytes, fewer at the end of the file.
  std::string text(int64_t offset, int64_t bytes) const;
  // XXH3-64 of `bytes` bytes at `offset`.
  uint64_t hash(int64_t offset, int64_t bytes) const;

 private:
  void check_size() const;

  std::string path_;
  int descriptor_;
  int64_t bytes_ = 0;
};

}  // namespace trivet::data
