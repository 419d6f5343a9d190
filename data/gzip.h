// Unpacks gzip: members, one after the other, each with a checksum. Nothing may come between or after them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trivet::data {

// Checks whether a file with these first bytes is packed with gzip.
bool is_gzip(std::string_view start);

class GzipStream {
 public:
  // `path` is for messages.
  explicit GzipStream(std::string path);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Unpacks into `out` until it is full or `packed` is used up, and removes from `packed` what was used. Returns the number of
  // bytes written. Throws DataError for damaged data, and for anything else that follows a member.
  size_t unpack(std::string_view& packed, std::span<char> out);
  // Checks whether the data may end here: no member has begun that is not complete.
  bool may_end() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
