// Messages between hosts over UCX (https://openucx.org), whose tagged messages are what comm/transport/transport.h asks for.
//
// One UCP worker per rank moves all its messages, and only while a thread of the rank waits. The variables UCX_* are UCX's own
// and have precedence; where they are not set, messages go over TCP through the one interface that was chosen, and are sent at
// once, without asking the receiver first (over TCP, asking makes two-way traffic half as fast).
#pragma once

#include "comm/transport/transport_module.h"

namespace trivet::comm {

// Throws CommError (Rendezvous) if UCX cannot use this interface.
std::unique_ptr<UnconnectedTransport> open_ucx(const NetworkInterface& interface, int rank, int size);
std::string ucx_version();  // "UCX 1.13.1"

}  // namespace trivet::comm
