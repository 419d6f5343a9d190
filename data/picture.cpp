#include "data/picture.h"

#include <png.h>

#include <algorithm>
#include <stdexcept>

namespace trivet::data {
namespace {

// The rows with the channels of a pixel next to each other.
std::vector<uint8_t> stored_rows(const Picture& picture) {
  std::vector<uint8_t> rows;
  const int64_t plane = picture.rows * picture.cols;
  for (int64_t pixel = 0; pixel < plane; ++pixel)
    for (int64_t channel = 0; channel < picture.channels; ++channel)
      rows.push_back(picture.pixels[static_cast<size_t>(channel * plane + pixel)]);
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
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.cols);
  image.height = static_cast<png_uint_32>(picture.rows);
  image.format = picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const std::vector<uint8_t> rows = stored_rows(picture);
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  if (::png_image_write_to_memory(&image, bytes.data(), &size, 0, rows.data(), 0, nullptr) == 0)
    throw std::runtime_error(std::string("libpng cannot write a picture: ") + image.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace trivet::data
