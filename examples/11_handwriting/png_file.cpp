#include "png_file.h"

#include <zlib.h>

#include <fstream>
#include <stdexcept>

namespace handwriting {
namespace {

std::string big_endian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + checked + big_endian(static_cast<uint32_t>(sum));
}

std::string packed(const std::string& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string text(size, '\0');
  if (::compress(reinterpret_cast<Bytef*>(text.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) !=
      Z_OK)
    throw std::runtime_error("zlib cannot compress an image");
  text.resize(size);
  return text;
}

}  // namespace

void write_png(const std::string& path, const Image& image) {
  std::string rows;  // each after the number of its filter: 0, none
  for (int row = 0; row < kRows; ++row)
    rows += std::string(1, '\0') + std::string(image.begin() + row * kColumns, image.begin() + (row + 1) * kColumns);
  const std::string header = big_endian(kColumns) + big_endian(kRows) + std::string("\x08\0\0\0\0", 5);  // 8 bits, gray
  std::ofstream file(path, std::ios::binary);
  file << "\x89PNG\r\n\x1a\n" << chunk("IHDR", header) << chunk("IDAT", packed(rows)) << chunk("IEND", "");
  if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

}  // namespace handwriting
