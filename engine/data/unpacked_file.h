// Reads a file from its beginning to its end, unpacked if it is gzip or zstd. Only regular files are read: a device or a pipe
// may never end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trivet::data {

class UnpackedFile {
 public:
  // Throws DataError if the file is missing, unreadable or not a regular file.
  explicit UnpackedFile(const std::string& path);
  ~UnpackedFile();
  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;

  // Fills `out` and returns its size, or fewer bytes at the end of the file. Throws DataError for damaged data.
  size_t read(std::span<char> out);
  // Appends at most `bytes` bytes to `text`; returns false at the end of the file.
  bool append(std::string& text, size_t bytes);
  // Which part of the file has been read, from 0 to 1.
  double share_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
