// Computes what DeepSpeed's monitors write about a step and an evaluation: one number per tag, at the number of samples so far.
//
// Tags: Train/Samples/{lr, loss_scale, train_loss, eval_loss} as DeepSpeed's engines write them, and Train/Samples/grad_norm.
// Pairs of answers add Train/Samples/{rewards, eval_rewards}/{chosen, rejected, margins} and
// Train/Samples/rewards/accuracies. Experts add Train/Samples/experts/{fullest, idle}. Means over targets are left out of a
// step or an evaluation that has none.
#pragma once

#include <string_view>
#include <vector>

#include "report/monitor/monitor.h"

namespace trivet::monitor {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

std::vector<Scalar> scalars_of(const StepMetrics& metrics);
std::vector<Scalar> scalars_of(const Evaluation& evaluation);

}  // namespace trivet::monitor
