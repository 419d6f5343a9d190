// Files of images, made for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trivet::test {

inline std::string big_endian_text(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

// An IDX file of bytes: {images, rows, columns} or {labels}.
inline std::string idx_text(const std::vector<uint32_t>& dims, const std::string& elements) {
  std::string text = big_endian_text(0x800 + static_cast<uint32_t>(dims.size()));
  for (const uint32_t dim : dims) text += big_endian_text(dim);
  return text + elements;
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const auto sum =
      static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
  return big_endian_text(static_cast<uint32_t>(data.size())) + checked + big_endian_text(sum);
}

inline std::string packed(const std::string& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string text(size, '\0');
  ::compress(reinterpret_cast<Bytef*>(text.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  text.resize(size);
  return text;
}

// A PNG file with these parts. `rows`: as they are stored, each after its filter.
struct PngText {
  uint32_t rows = 1, cols = 1;
  char depth = 8, colour = 0, interlaced = 0;
  std::string palette = {}, stored = {};

  std::string header() const {
    return png_chunk("IHDR",
                     big_endian_text(cols) + big_endian_text(rows) + depth + colour + std::string(2, '\0') + interlaced);
  }
  std::string text() const {
    return signature() + header() + (palette.empty() ? "" : png_chunk("PLTE", palette)) + png_chunk("IDAT", packed(stored)) +
           png_chunk("IEND", "");
  }
  static std::string signature() { return "\x89PNG\r\n\x1a\n"; }
};

}  // namespace trivet::test
