// The facts that an agent finds out about its host before any rank starts.
#pragma once

#include "cli/launch/hosts/agent_messages.h"

namespace trivet::cli {

// Inspects this host. Call it in the task's directory; `environment` is that of the ranks.
HostReport inspect_host(const HostTask& task, const comm::Environment& environment);

}  // namespace trivet::cli
