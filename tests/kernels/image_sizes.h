// Shapes of images and windows that the tests of their kernels share, and places in them.
#pragma once

#include <vector>

#include "kernels/convolution.h"
#include "tests/kernels/every_device.h"

namespace trivet::kernels {

struct ImageCase {
  Shape x;  // [B, C, H, W]
  int64_t out_channels;
  Window window;

  Shape y(int64_t channels) const { return {x[0], channels, window.output_rows(x[2]), window.output_cols(x[3])}; }
};

// With and without strides and padding; windows that leave pixels over; one pixel; no image; one whose columns are made in
// several blocks; and rows of more windows than fit a vector, with each stride.
inline std::vector<ImageCase> image_cases(const KernelsOnEveryDevice& test) {
  std::vector<ImageCase> cases{{{0, 2, 3, 3}, 2, {.rows = 2, .cols = 2}},
                               {{1, 1, 1, 1}, 1, {.rows = 1, .cols = 1}},
                               {{2, 3, 5, 7}, 4, {.rows = 3, .cols = 3}},
                               {{3, 2, 4, 4}, 3, {.rows = 3, .cols = 3, .padding = 1}},
                               {{9, 2, 9, 6}, 3, {.rows = 4, .cols = 2, .stride = 3, .padding = 1}},
                               {{2, 3, 7, 8}, 2, {.rows = 3, .cols = 5, .stride = 2, .padding = 3}},
                               {{1, 31, 24, 25}, 2, {.rows = 3, .cols = 3}},
                               {{2, 2, 6, 83}, 9, {.rows = 3, .cols = 3, .padding = 1}},
                               {{2, 1, 7, 45}, 17, {.rows = 2, .cols = 2, .stride = 2}},
                               {{1, 2, 7, 76}, 3, {.rows = 3, .cols = 3, .stride = 2, .padding = 1}},
                               {{1, 2, 5, 64}, 2, {.rows = 2, .cols = 5, .stride = 3, .padding = 1}}};
  std::erase_if(cases, [&](const ImageCase& c) { return test.takes_too_long(c.x.elements() * c.window.pixels()); });
  return cases;
}

// The element of [B, C, H, W].
inline int64_t at(const Shape& images, int64_t image, int64_t channel, int64_t row, int64_t col) {
  return ((image * images[1] + channel) * images[2] + row) * images[3] + col;
}

}  // namespace trivet::kernels
