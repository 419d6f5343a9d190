// Offers what Horovod's Keras callbacks do, as functions for your own training loop.
#pragma once

#include <string>

#include "hvd/communicator.h"

namespace trivet::hvd {

// MetricAverageCallback: the mean of a number over all ranks.
inline double metric_average(Communicator& hvd, double value, const std::string& name) {
  hvd.allreduce_({&value, DType::Float64, Shape{1}}, {.name = "metric." + name});
  return value;
}

// LearningRateWarmupCallback: rises linearly from initial_lr / size at epoch 0 to initial_lr (the rate for all `size` ranks)
// after `warmup_epochs`. `epoch` counts fractions: epoch 1 at half of its steps is 1.5.
inline double warmup_learning_rate(double initial_lr, double epoch, double warmup_epochs, int size) {
  if (epoch >= warmup_epochs) return initial_lr;
  return initial_lr / size * (1 + epoch * (size - 1) / warmup_epochs);
}

}  // namespace trivet::hvd
