// Transports over UCX (comm/ucx) whose ranks are threads of this process, connected through the loopback interface.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport/transport.h"

namespace trivet::comm {

// By rank. Throws std::logic_error if this was built without UCX.
std::vector<std::unique_ptr<Transport>> ucx_transports(int ranks);

}  // namespace trivet::comm
