// Maps the elements of a rank's part of a parameter to their places in the whole parameter.
#pragma once

#include <vector>

#include "tensor_parallel/split.h"

namespace trivet::model {

// places[e] is the place in the whole parameter of element e of the rank's part.
inline std::vector<size_t> local_places(const ParameterSpec& spec, int rank, int size) {
  std::vector<size_t> places;
  const int64_t whole_width = spec.shape.elements() / spec.shape[0];
  for (const tensor_parallel::LocalBox& box : tensor_parallel::local_part(spec, rank, size).boxes) {
    const int64_t width = box.shape.elements() / box.shape[0];
    const int64_t first_col = spec.shape.dims() > 1 ? box.start[1] : 0;
    for (int64_t row = 0; row < box.shape[0]; ++row)
      for (int64_t col = 0; col < width; ++col) places.push_back((box.start[0] + row) * whole_width + first_col + col);
  }
  return places;
}

inline std::vector<double> local_values(const std::vector<double>& whole, const ParameterSpec& spec, int rank, int size) {
  std::vector<double> values;
  for (size_t place : local_places(spec, rank, size)) values.push_back(whole[place]);
  return values;
}

}  // namespace trivet::model
