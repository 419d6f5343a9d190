// Unpacks zstd with the system's libzstd.so.1, which is opened for the first file that needs it: so a program that reads no
// such file need not have it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trivet::data {

// Checks whether a file with these first bytes is packed with zstd.
bool is_zstd(std::string_view start);

class ZstdStream {
 public:
  // Throws DataError naming `path` if there is no libzstd.
  explicit ZstdStream(const std::string& path);
  ~ZstdStream();
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  // Unpacks into `out` until it is full or `packed` is used up, and removes from `packed` what was used. Returns the number of
  // bytes written. Throws DataError for damaged data.
  size_t unpack(std::string_view& packed, std::span<char> out);
  // Checks whether the data may end here: no frame has begun that is not complete.
  bool may_end() const { return may_end_; }

 private:
  struct Library;
  [[noreturn]] void refuse(size_t packed_bytes, size_t unpacked_bytes, const char* reason) const;

  std::string path_;
  std::unique_ptr<Library> library_;
  void* stream_ = nullptr;
  bool may_end_ = true;
  size_t packed_bytes_ = 0, unpacked_bytes_ = 0;
  size_t frames_end_ = 0;  // packed size of the complete frames
};

}  // namespace trivet::data
