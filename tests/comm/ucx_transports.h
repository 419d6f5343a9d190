// Transports over UCX (comm/ucx) whose ranks are threads of this process, connected through the loopback interface.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport/transport.h"

namespace trivet::comm {

// By rank. Throws std::logic_error if this was built without UCX.
std::vector<std::unique_ptr<Transport>> ucx_transports(int ranks);

// One transport more, which knows all addresses but not the key of the job.
std::vector<std::unique_ptr<Transport>> ucx_transports_and_a_stranger(int ranks);

}  // namespace trivet::comm
