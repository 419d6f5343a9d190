#include "engine/checkpoint/common_elements.h"

#include <algorithm>

namespace trivet::checkpoint {
namespace {

// Dims that both boxes contain completely are joined with the dim before them, so that stretches get long: two parts of the
// same flattened tensor have at most one.
struct JoinedDims {
  std::vector<int64_t> from_start, from_shape, to_start, to_shape;
};

JoinedDims join_whole_dims(const Shape& shape, const Region& from, const Region& to) {
  JoinedDims joined;
  int64_t inner = 1;  // elements of the dims joined so far
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    const bool whole = from.box_shape[dim] == shape[dim] && to.box_shape[dim] == shape[dim];
    if (whole && dim > 0) {
      inner *= shape[dim];
      continue;
    }
    joined.from_start.push_back(from.box_start[dim] * inner);
    joined.from_shape.push_back(from.box_shape[dim] * inner);
    joined.to_start.push_back(to.box_start[dim] * inner);
    joined.to_shape.push_back(to.box_shape[dim] * inner);
    inner = 1;
  }
  if (shape.dims() == 0) joined = {{0}, {1}, {0}, {1}};
  for (auto* dims : {&joined.from_start, &joined.from_shape, &joined.to_start, &joined.to_shape})
    std::reverse(dims->begin(), dims->end());
  return joined;
}

// The flattened place in the `from` box of row `row` (all dims but the last) of the `to` box; -1 if it does not contain that
// row.
int64_t row_in_from(const JoinedDims& dims, int64_t row) {
  int64_t place = 0, stride = 1;
  for (size_t dim = dims.to_shape.size() - 1; dim-- > 0;) {
    const int64_t index = dims.to_start[dim] + row % dims.to_shape[dim] - dims.from_start[dim];
    if (index < 0 || index >= dims.from_shape[dim]) return -1;
    row /= dims.to_shape[dim];
    place += index * stride;
    stride *= dims.from_shape[dim];
  }
  return place;
}

}  // namespace

std::vector<CommonElements> common_elements(const Shape& shape, const Region& from, const Region& to) {
  std::vector<CommonElements> common;
  if (from.count == 0 || to.count == 0) return common;
  const JoinedDims dims = join_whole_dims(shape, from, to);
  const int64_t from_cols = dims.from_shape.back(), to_cols = dims.to_shape.back();
  const int64_t col_begin = std::max(dims.from_start.back(), dims.to_start.back());
  const int64_t col_end = std::min(dims.from_start.back() + from_cols, dims.to_start.back() + to_cols);
  if (col_begin >= col_end) return common;
  for (int64_t row = to.first / to_cols; row <= (to.first + to.count - 1) / to_cols; ++row) {
    const int64_t from_row = row_in_from(dims, row);
    if (from_row < 0) continue;
    const int64_t from_begin = from_row * from_cols + col_begin - dims.from_start.back() - from.first;
    const int64_t to_begin = row * to_cols + col_begin - dims.to_start.back() - to.first;
    const int64_t skip = std::max({int64_t{0}, -from_begin, -to_begin});
    const int64_t end = std::min({col_end - col_begin, from.count - from_begin, to.count - to_begin});
    if (end > skip) common.push_back({from_begin + skip, to_begin + skip, end - skip});
  }
  return common;
}

}  // namespace trivet::checkpoint
