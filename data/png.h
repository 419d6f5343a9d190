// Reads images in the PNG format (ISO/IEC 15948) with libpng: gray, RGB and palettes of any depth, also interlaced.
//
// Samples of 16 bits are scaled to 8, and transparency is left out, so that the colour of each pixel stays as it is stored.
// What libpng would mend with a warning is refused: damaged checksums, missing pixels, bytes after the end.
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
