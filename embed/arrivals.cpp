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

std::optional<int> Arrivals::next() {
  if (next_ < 0 || !is_complete(next_)) return std::nullopt;
  return next_--;
}

}  // namespace trivet::embed
