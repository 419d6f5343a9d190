// trivet train --ddp: data parallelism as PyTorch's DistributedDataParallel does it. Every rank has all weights, and gradients
// are averaged in buckets while backward runs.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace trivet::cli {

// The keys that --ddp sets, as key=value: those that the config does not give. Throws ConfigError, with the key and what to do,
// if the config asks for more than data parallelism.
std::vector<std::string> ddp_overrides(const Config& config);

// Describes, for people, what a run with these keys does; `config` has them, and `set` is what ddp_overrides returned.
std::string describe_ddp(const Config& config, const std::vector<std::string>& set);

}  // namespace trivet::cli
