#include "core/rising_number.h"

#include <algorithm>
#include <cmath>

namespace trivet {

int64_t RisingNumber::at(int64_t step) const {
  const double share = std::pow(static_cast<double>(step) / static_cast<double>(steps), 1 / degree);
  const double exact = std::floor(share * static_cast<double>(most - least) + static_cast<double>(least));
  if (exact >= static_cast<double>(most + multiple)) return most;  // before it becomes too large for an integer
  const auto number = static_cast<int64_t>(exact);
  return std::min(number - number % multiple, most);
}

std::vector<int64_t> steps_of_change(int64_t first, const std::function<int64_t(int64_t step)>& number) {
  constexpr int64_t kNever = int64_t{1} << 50;
  std::vector<int64_t> steps{first};
  const int64_t last = number(kNever);
  for (int64_t now = number(first); now < last; now = number(steps.back())) {
    int64_t same = steps.back(), other = kNever;
    while (other - same > 1) {
      const int64_t middle = same + (other - same) / 2;
      (number(middle) == now ? same : other) = middle;
    }
    steps.push_back(other);
  }
  return steps;
}

}  // namespace trivet
