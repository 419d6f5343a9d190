#include "core/rising_number.h"

#include <algorithm>
#include <cmath>

namespace trivet {

int64_t RisingNumber::at(int64_t step) const {
  const double share = std::pow(static_cast<double>(step) / static_cast<double>(steps), 1 / degree);
  const double exact = std::floor(share * static_cast<double>(most - least) + static_cast<double>(least));
  // Before it becomes too large for an integer.
  if (exact >= static_cast<double>(most) + static_cast<double>(multiple)) return most;
  const auto number = static_cast<int64_t>(exact);
  return std::min(number - number % multiple, most);
}

std::vector<int64_t> steps_of_change(int64_t first, const std::function<int64_t(int64_t step)>& number) {
  std::vector<int64_t> steps{first};
  const int64_t last = number(kStepAfterAllRuns);
  for (int64_t now = number(first); now < last; now = number(steps.back())) {
    int64_t same = steps.back(), other = kStepAfterAllRuns;
    while (other - same > 1) {
      const int64_t middle = same + (other - same) / 2;
      (number(middle) == now ? same : other) = middle;
    }
    steps.push_back(other);
  }
  return steps;
}

}  // namespace trivet
