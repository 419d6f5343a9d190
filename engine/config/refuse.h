// Refusing a config for what its keys say together, with the place in the file of the key that is named.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace trivet::config {

const GivenKey* find_given(const Config& config, const std::string& path);

// The key as it was given, perhaps under its other name (pipeline.stages for parallel.pipeline).
const GivenKey* find_given_or_alias(const Config& config, const std::string& path);

// Throws ConfigError: "gpt.json:3:14: parallel.tensor: what"; without a place where the key was not given.
[[noreturn]] void refuse(const Config& config, const std::string& path, const std::string& what);

// The axes, the pipeline and what they ask of the model.
void check_parallel(const Config& config);

// offload_param, offload_optimizer.
void check_offload(const Config& config);

}  // namespace trivet::config
