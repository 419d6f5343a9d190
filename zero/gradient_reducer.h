// The reductions in flight, oldest first. Their number is bounded, and with it the number of groups that hold whole gradients
// while their reduction overlaps with the backward.
//
// This bound, not the speed of the network, decides when memory is released, so that the plan can predict it.
#pragma once

#include <deque>

#include "zero/parameter_group.h"

namespace trivet::zero {

class GradientReducer {
 public:
  // 0: reduce() returns when the reduction is done (overlap_comm false).
  explicit GradientReducer(int most_in_flight) : most_in_flight_(static_cast<size_t>(most_in_flight)) {}

  void reduce(ParameterGroup& group) {
    while (in_flight_.size() >= most_in_flight_ && !in_flight_.empty()) retire_oldest();
    group.reduce();
    in_flight_.push_back(&group);
    if (most_in_flight_ == 0) retire_oldest();
  }
  void finish() {
    while (!in_flight_.empty()) retire_oldest();
  }

 private:
  void retire_oldest() {
    in_flight_.front()->retire();
    in_flight_.pop_front();
  }

  size_t most_in_flight_;
  std::deque<ParameterGroup*> in_flight_;
};

}  // namespace trivet::zero
