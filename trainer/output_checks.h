// Checks every place that a run will write to, before it begins (core/output_guard.h): the file of --metrics, and the files and
// folders that the config names.
#pragma once

#include "core/output_guard.h"
#include "engine/config/config.h"
#include "trainer/trainer.h"

namespace trivet::trainer {

// Names what a run with this config reads, for every command whose outputs must be none of it. `init_from` is the model or the
// checkpoints that it begins with; empty: none.
void add_inputs_of_run(OutputGuard& guard, const Config& config, const std::string& init_from);

// Throws ConfigError for a folder to which steps are to be saved, but which holds a model in Hugging Face's format, in which
// nobody would look for steps, or checkpoints of another program, the name of whose newest one would be lost.
void refuse_steps_among_others(const std::string& folder, const std::string& key);

// Checks outputs on the rank that writes them, the first one. Throws ConfigError. `force`: whether files that Trivet
// did not write may be replaced.
void check_outputs(const Config& config, const TrainOptions& options, Force force);

}  // namespace trivet::trainer
