// The world of ranks on several hosts: each opens the transport's module (transport_module.h), learns the others' addresses
// from the store, and tries whether messages arrive.
#pragma once

#include "comm/world_maker.h"

namespace trivet::comm {

// A WorldMaker. Throws CommError (Rendezvous) if there is no transport, or, naming both ends, if the others cannot be reached.
std::unique_ptr<World> make_network_world(const WorldRequest& request);

}  // namespace trivet::comm
