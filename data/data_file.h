// A file that is read piece by piece during a run and must not change in the meantime.
//
// Pieces are copied out of the system's cache rather than mapped. If somebody truncates a mapped file, the process is killed by
// SIGBUS; a copy that comes out short is an error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trivet::data {

class DataFile {
 public:
  // Throws DataError if the file is missing, unreadable, empty or not a regular file.
  explicit DataFile(const std::string& path);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened

  // Fills `out` with the bytes at `offset`. Throws DataError (exit code 18) if the size of the file has changed since it was
  // opened. Thread-safe.
  void read(int64_t offset, std::span<std::byte> out) const;
  // Returns at most `bytes` bytes, fewer at the end of the file.
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
