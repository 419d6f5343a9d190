// Where two parts of one tensor have elements in common. Arithmetic only.
#pragma once

#include <cstdint>
#include <vector>

#include "core/shape.h"

namespace trivet::checkpoint {

// Elements [first, first + count) of the row-major elements of a box of the tensor.
struct Region {
  Shape box_start, box_shape;
  int64_t first = 0, count = 0;
};

// `count` elements that are neighbours in both parts; places count from each part's own first element.
struct Run {
  int64_t from = 0, to = 0, count = 0;
};

// All runs that `from` and `to` (parts of a tensor of this shape) have in common, ascending in `to`.
std::vector<Run> common_runs(const Shape& shape, const Region& from, const Region& to);

}  // namespace trivet::checkpoint
