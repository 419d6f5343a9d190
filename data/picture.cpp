#include "data/picture.h"

#include <zlib.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace trivet::data {
namespace {

std::string in_big_endian(int64_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

std::string png_part(const std::string& type, const std::string& content) {
  const std::string checked = type + content;
  const uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return in_big_endian(static_cast<int64_t>(content.size())) + checked + in_big_endian(static_cast<int64_t>(sum));
}

std::string compressed(const std::string& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string text(size, '\0');
  if (::compress(reinterpret_cast<Bytef*>(text.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) !=
      Z_OK)
    throw std::runtime_error("zlib cannot compress a picture");
  text.resize(size);
  return text;
}

// The rows with the channels of a pixel next to each other, each after the number of its filter: 0, none.
std::string stored_rows(const Picture& picture) {
  std::string rows;
  const int64_t plane = picture.rows * picture.cols;
  for (int64_t row = 0; row < picture.rows; ++row) {
    rows += '\0';
    for (int64_t col = 0; col < picture.cols; ++col)
      for (int64_t channel = 0; channel < picture.channels; ++channel)
        rows += static_cast<char>(picture.pixels[static_cast<size_t>(channel * plane + row * picture.cols + col)]);
  }
  return rows;
}

}  // namespace

Picture reduced(const Picture& picture, int64_t most) {
  const int64_t side = (std::max(picture.rows, picture.cols) + most - 1) / most;  // edge of a pixel's square
  if (side <= 1) return picture;
  Picture small{.channels = picture.channels,
                .rows = (picture.rows + side - 1) / side,
                .cols = (picture.cols + side - 1) / side,
                .pixels = {}};
  for (int64_t channel = 0; channel < small.channels; ++channel)
    for (int64_t top = 0; top < picture.rows; top += side)
      for (int64_t left = 0; left < picture.cols; left += side) {
        const int64_t bottom = std::min(top + side, picture.rows), right = std::min(left + side, picture.cols);
        int64_t sum = 0;
        for (int64_t row = top; row < bottom; ++row)
          for (int64_t col = left; col < right; ++col)
            sum += picture.pixels[static_cast<size_t>((channel * picture.rows + row) * picture.cols + col)];
        small.pixels.push_back(static_cast<uint8_t>(sum / ((bottom - top) * (right - left))));
      }
  return small;
}

std::string to_png(const Picture& picture) {
  constexpr std::string_view kBegin("\x89PNG\r\n\x1a\n", 8);
  constexpr char kGray = 0, kRgb = 2;
  const std::string header = in_big_endian(picture.cols) + in_big_endian(picture.rows) + '\x08' +
                             (picture.channels == 3 ? kRgb : kGray) + std::string(3, '\0');
  return std::string(kBegin) + png_part("IHDR", header) + png_part("IDAT", compressed(stored_rows(picture))) +
         png_part("IEND", "");
}

}  // namespace trivet::data
