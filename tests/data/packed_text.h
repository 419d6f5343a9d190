// Texts that are packed with gzip and zstd.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>

namespace trivet::data {

// One member.
inline std::string gzip_of(const std::string& text) {
  z_stream stream = {};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()) + 32, '\0'), copy = text;
  stream.next_in = reinterpret_cast<Bytef*>(copy.data());
  stream.avail_in = static_cast<uInt>(copy.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// A frame with one block that is stored as it is (RFC 8878), of at most 255 bytes.
inline std::string zstd_of(const std::string& text) {
  const auto header = static_cast<uint32_t>(text.size() << 3 | 1);  // the last block
  std::string frame("\x28\xB5\x2F\xFD\x20", 5);
  frame += static_cast<char>(text.size());
  for (int byte = 0; byte < 3; ++byte) frame += static_cast<char>(header >> 8 * byte & 0xFF);
  return frame + text;
}

}  // namespace trivet::data
