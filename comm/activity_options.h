// Options for activity tracking.
#pragma once

#include "comm/world.h"
#include "comm/world_activity.h"

namespace trivet::comm {

// Options for the rank that messages call `who`; reports go where `options` says.
WorldActivity::Options activity_options(int rank, int size, const std::string& who, const WorldOptions& options);

}  // namespace trivet::comm
