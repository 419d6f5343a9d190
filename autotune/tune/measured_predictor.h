// Steps rehearsed with what was measured on these ranks (autotune/rehearsed_step.h) as a StepPredictor.
#pragma once

#include <memory>
#include <string>

#include "autotune/hardware_profile.h"
#include "autotune/step_predictor.h"
#include "comm/world.h"
#include "model/model.h"

namespace trivet::autotune {

// Kernels and operations as the ranks take them now, all at work; about `seconds` for each of the two. The same on all ranks,
// which call it together.
HardwareProfile measure_ranks(comm::World& world, Device device, int threads, int local_rank, double seconds);

// `source`: where the profile is from, for messages. Throws ConfigError where the profile does not have so many ranks or is of
// another device than the trials', or of ranks with other threads. What it is asked for is what rehearse_step takes: no offload
// to files, nor from a GPU.
std::unique_ptr<StepPredictor> make_measured_predictor(const HardwareProfile& profile, const std::string& source,
                                                       const model::Description& model, Device device, int threads,
                                                       int world_size);

}  // namespace trivet::autotune
