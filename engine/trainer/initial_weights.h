// --init-from: a run that begins with the weights of another model instead of random ones.
#pragma once

#include <string>
#include <vector>

#include "engine/trainer/run.h"

namespace trivet::trainer {

// The keys of the section "model" that these weights belong to, as defaults for load_config: "model.layers=12". `path`: a
// folder in Hugging Face's format, a directory of checkpoints or one of its steps.
std::vector<std::string> model_keys_of(const std::string& path);

// Throws ConfigError if the weights at `path` are of another model than `ours`, the model of `config`.
void check_initial_weights(const std::string& path, const Config& config, const model::Description& ours);

// Each rank reads its own parts. Returns what was read, in words; empty: options.init_from is. Throws ConfigError if the
// weights are those of another model, CommError if ranks found different ones. Collective.
std::string load_initial_weights_if_asked(Run& run);

}  // namespace trivet::trainer
