// A whole file in memory, read only, paged in by the system when it is used.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trivet::data {

class MappedFile {
 public:
  // Throws DataError: missing, a directory, unreadable, empty.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(bytes_)}; }

 private:
  const std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace trivet::data
