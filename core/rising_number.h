// A whole number that rises with the steps of a run and never falls, as DeepSpeed's schedules "fixed_linear" and "fixed_root"
// have it: the length of a curriculum's sequences, the tokens that a block computes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace trivet {

// A step that no run reaches, in which all such numbers have their last value.
inline constexpr int64_t kStepAfterAllRuns = int64_t{1} << 50;

//   floor((step / steps)^(1 / degree) (most - least) + least), down to a multiple of `multiple`, and at most `most`
struct RisingNumber {
  int64_t least = 0, most = 0;
  int64_t steps = 1;     // from the least to the most, at least 1
  int64_t multiple = 1;  // at least 1
  double degree = 1;     // degree of the root

  int64_t at(int64_t step) const;
};

// The steps from `first` on whose number is not that of the step before, and `first` itself. `number` never falls.
std::vector<int64_t> steps_of_change(int64_t first, const std::function<int64_t(int64_t step)>& number);

}  // namespace trivet
