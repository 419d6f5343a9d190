// Transports over gloo (comm/gloo) whose ranks are threads of this process, connected through the loopback interface.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport/transport.h"

namespace trivet::comm {

// By rank. Throws std::logic_error if this was built without gloo.
std::vector<std::unique_ptr<Transport>> gloo_transports(int ranks);

// Over IPv6.
std::vector<std::unique_ptr<Transport>> gloo_transports_v6(int ranks);

// One transport more, which knows all addresses but not the key of the job.
std::vector<std::unique_ptr<Transport>> gloo_transports_and_a_stranger(int ranks);

// Two ranks. Before they connect, a stranger connects to the port where one of them waits for the other, and sends back
// whatever it receives until the ranks have connected.
std::vector<std::unique_ptr<Transport>> gloo_transports_and_an_echo();

}  // namespace trivet::comm
