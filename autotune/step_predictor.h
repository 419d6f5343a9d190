// The interface for predicting the seconds of a step, either from a description of the machine or from measurements on it.
#pragma once

namespace trivet {
struct Config;
}

namespace trivet::autotune {

class StepPredictor {
 public:
  virtual ~StepPredictor() = default;
  // Seconds of one optimizer step of this config on `world_size` ranks. Only the order of configs matters: the first trial
  // corrects a factor that all of them share. The config must be one that make_plan accepts.
  virtual double seconds(const Config& config, int world_size) = 0;
};

}  // namespace trivet::autotune
