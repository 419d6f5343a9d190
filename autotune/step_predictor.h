// Predicted seconds of a step, by whatever knows the machine: a description of it, or what was measured on it.
#pragma once

#include "engine/config/config.h"

namespace trivet::autotune {

class StepPredictor {
 public:
  virtual ~StepPredictor() = default;
  // Seconds of one optimizer step of this config on so many ranks. What counts is the order that it gives configs: a factor
  // that all of them share is corrected by the first trial. The config is one that make_plan accepts.
  virtual double seconds(const Config& config, int world_size) = 0;
};

}  // namespace trivet::autotune
