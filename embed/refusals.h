// Keys of a config that an embedded optimizer refuses or does not use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "embed/parameter.h"
#include "engine/config/config.h"

namespace trivet::embed {

// Throws ConfigError, with the key and its place in the file, for axes other than data, GPUs, offloading and
// audit.every_steps.
void refuse_unused(const Config& config, std::span<const Parameter> parameters);

// The given keys and sections that have no effect in an embedded optimizer, in the order in which they were given: "model",
// "checkpoint.keep". Those that a trainer may use itself, training.steps and checkpoint.directory, are not among them.
std::vector<std::string> unused_keys(const Config& config);

}  // namespace trivet::embed
