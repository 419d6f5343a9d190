#include "data/picture.h"

#include <gtest/gtest.h>

#include <array>

#include "data/png.h"

namespace trivet::data {
namespace {

// Pixels are numbered.
Picture numbered_picture(int64_t channels, int64_t rows, int64_t cols) {
  Picture picture{.channels = channels, .rows = rows, .cols = cols, .pixels = {}};
  for (int64_t i = 0; i < channels * rows * cols; ++i) picture.pixels.push_back(static_cast<uint8_t>(i));
  return picture;
}

TEST(Picture, AsPngIsReadBackAsItWas) {
  for (const auto& [channels, rows, cols] : {std::array<int64_t, 3>{1, 1, 1}, {1, 5, 7}, {3, 4, 6}}) {
    const Picture picture = numbered_picture(channels, rows, cols), read = read_png(to_png(picture), "picture");
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.rows, rows);
    EXPECT_EQ(read.cols, cols);
    EXPECT_EQ(read.pixels, picture.pixels);
  }
}

TEST(Picture, IsReducedToTheMeansOfSquares) {
  const Picture small = reduced(numbered_picture(3, 2, 5), 3);
  EXPECT_EQ(small.rows, 1);
  EXPECT_EQ(small.cols, 3);
  EXPECT_EQ(small.pixels, (std::vector<uint8_t>{3, 5, 6, 13, 15, 16, 23, 25, 26}));  // (0 + 1 + 5 + 6) / 4 ... (4 + 9) / 2
  EXPECT_EQ(reduced(numbered_picture(1, 4, 5), 5).pixels, numbered_picture(1, 4, 5).pixels);
}

}  // namespace
}  // namespace trivet::data
