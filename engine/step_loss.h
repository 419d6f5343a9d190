// The loss of a step or an evaluation, as an exact sum: combined over ranks it has the same bits on every layout.
#pragma once

#include "comm/process_group.h"
#include "core/exact_sum.h"

namespace trivet {

struct StepLoss {
  ExactSum loss_sum;  // over targets that count
  int64_t loss_tokens = 0;

  void add(const StepLoss& other);
  double mean() const;  // 0 without targets
};

// The sum over all ranks of `group`, on all of them.
StepLoss sum_over(const StepLoss& loss, comm::ProcessGroup& group, Stream& stream);

}  // namespace trivet
