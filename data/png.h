// Reads images in the PNG format (ISO/IEC 15948): gray of 1, 2, 4 or 8 bits, RGB of 8 bits, and palettes, which become RGB.
//
// Refused, by name: transparency, 16 bits, interlacing, more than kMaxPngPixels pixels. Checksums are checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/picture.h"

namespace trivet::data {

inline constexpr int64_t kMaxPngPixels = int64_t{1} << 24;

// Checks whether a file begins as a PNG image does.
bool is_png(std::string_view bytes);

// `path` is for messages. Throws DataError for bytes that are not such an image.
Picture read_png(std::string_view bytes, const std::string& path);

}  // namespace trivet::data
