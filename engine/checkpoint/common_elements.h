// Finds the elements that two parts of a tensor have in common. Arithmetic only.
#pragma once

#include <cstdint>
#include <vector>

#include "core/shape.h"

namespace trivet::checkpoint {

// Elements [first, first + count) of a box of the tensor, in row-major order.
struct Region {
  Shape box_start, box_shape;
  int64_t first = 0, count = 0;
};

// A stretch of `count` elements that is contiguous in both parts; `from` and `to` count from the first element of each part.
struct CommonElements {
  int64_t from = 0, to = 0, count = 0;
};

// All elements that `from` and `to` (parts of a tensor of this shape) have in common, ascending in `to`.
std::vector<CommonElements> common_elements(const Shape& shape, const Region& from, const Region& to);

}  // namespace trivet::checkpoint
