// What a config can say that an embedded optimizer cannot do.
#pragma once

#include <span>

#include "embed/parameter.h"
#include "engine/config/config.h"

namespace trivet::embed {

// Throws ConfigError, with the key and its place in the file, for axes other than data, GPUs, offloading and
// audit.every_steps.
void refuse_unused(const Config& config, std::span<const Parameter> parameters);

}  // namespace trivet::embed
