// Numbers and texts in the messages of negotiations. Ranks of one job run the same build on the same kind of processor, so
// numbers are sent as they are in memory; lengths are checked all the same.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace trivet::hvd {

template <typename T>
void append(std::string& bytes, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_text(std::string& bytes, std::string_view text) {
  append(bytes, static_cast<uint32_t>(text.size()));
  bytes.append(text);
}

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number<uint32_t>()); }

  [[noreturn]] static void refuse() {
    throw CommError(ExitCode::VersionSkew,
                    "hvd: a rank has sent a message that this build does not understand; start all ranks from one build");
  }

 private:
  std::string_view take(size_t count) {
    if (count > bytes_.size()) refuse();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace trivet::hvd
