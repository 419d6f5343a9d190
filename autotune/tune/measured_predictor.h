// A StepPredictor that rehearses steps with what was measured on these ranks (autotune/rehearsed_step.h).
#pragma once

#include <memory>
#include <string>

#include "autotune/hardware_profile.h"
#include "autotune/step_predictor.h"
#include "comm/world.h"
#include "model/model.h"

namespace trivet::autotune {

// Measures kernels and operations while all ranks are at work, for about `seconds` each. All ranks call it together and get the
// same profile.
HardwareProfile measure_ranks(comm::World& world, Device device, int threads, int local_rank, double seconds);

// `source` is where the profile is from, for messages. Throws ConfigError if the profile does not have this number of ranks, or
// was measured on a different device or with a different number of threads from the trials. The predictor takes the configs
// that rehearse_step takes: no offload to files, nor from a GPU.
std::unique_ptr<StepPredictor> make_measured_predictor(const HardwareProfile& profile, const std::string& source,
                                                       const model::Description& model, Device device, int threads,
                                                       int world_size);

}  // namespace trivet::autotune
