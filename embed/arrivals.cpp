#include "embed/arrivals.h"

#include <algorithm>
#include <utility>

namespace trivet::embed {

Arrivals::Arrivals(std::vector<int> gradients_of_unit) : gradients_of_unit_(std::move(gradients_of_unit)) {
  begin_microbatch();
}

void Arrivals::begin_microbatch() {
  missing_ = gradients_of_unit_;
  next_ = static_cast<int>(missing_.size()) - 1;
}

void Arrivals::end_microbatch() { std::fill(missing_.begin(), missing_.end(), 0); }

int Arrivals::complete_from() const {
  int unit = static_cast<int>(missing_.size());
  while (unit > 0 && is_complete(unit - 1)) --unit;
  return unit;
}

std::optional<int> Arrivals::next(int from) {
  if (next_ < from || !is_complete(next_)) return std::nullopt;
  return next_--;
}

}  // namespace trivet::embed
