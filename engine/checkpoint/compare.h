// Compares two checkpoints tensor by tensor, whatever layouts wrote them.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/loaded_step.h"

namespace trivet::checkpoint {

enum class Difference : uint8_t { None, OnlyInFirst, OnlyInSecond, Type, Values };

struct TensorDifference {
  std::string name;
  Difference kind = Difference::None;
  int64_t different_elements = 0;  // elements whose bits differ
  double largest = 0;              // largest |first - second|; NaN if either value is
};

// Returns one entry for each tensor of either checkpoint, ordered by name. Bits are compared, so -0 differs from 0 and a NaN
// equals itself.
std::vector<TensorDifference> compare(const LoadedStep& first, const LoadedStep& second);

}  // namespace trivet::checkpoint
