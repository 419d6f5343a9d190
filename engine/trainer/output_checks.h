// Checks every place that a run will write to, before it begins (core/output_guard.h): the file of --metrics, and the files and
// folders that the config names.
#pragma once

#include "core/output_guard.h"
#include "engine/config/config.h"
#include "engine/trainer.h"

namespace trivet::trainer {

// For the rank that writes them, the first one. Throws ConfigError. `force`: whether files that Trivet did not write may be
// replaced.
void check_outputs(const Config& config, const TrainOptions& options, Force force);

}  // namespace trivet::trainer
