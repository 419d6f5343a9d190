// An image in memory, and as a PNG file (ISO/IEC 15948) for pages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trivet::data {

struct Picture {
  int64_t channels = 0, rows = 0, cols = 0;  // channels: 1 (gray) or 3 (RGB)
  std::vector<uint8_t> pixels;               // [channels, rows, cols]
};

// The picture in at most `most` rows and columns: squares of pixels become their mean.
Picture reduced(const Picture& picture, int64_t most);

// The bytes of a PNG file, 8 bits a channel.
std::string to_png(const Picture& picture);

}  // namespace trivet::data
