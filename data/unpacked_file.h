// Reads a file from its beginning to its end, unpacked if it is gzip or zstd. Only regular files are read: a device or a pipe
// may never end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trivet::data {

class UnpackedFile {
 public:
  // Throws DataError if the file is missing, unreadable, empty or not a regular file.
  explicit UnpackedFile(const std::string& path);
  ~UnpackedFile();
  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;

  // Fills `out` and returns its size, or fewer bytes at the end of the file. Throws DataError, with the place in the file, for
  // packed data that is damaged or truncated, or that is followed by something else.
  size_t read(std::span<char> out);
  // Appends at most `bytes` bytes to `text`; returns false at the end of the file.
  bool append(std::string& text, size_t bytes);
  // Returns the part of the file that has been read, from 0 to 1.
  double share_read() const;
  std::string_view packing() const;  // "gzip", "zstd", or empty

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
