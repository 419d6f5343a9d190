// Messages between hosts over gloo's TCP connections (https://github.com/facebookincubator/gloo), by its buffers that are sent
// and received one at a time, not by its collectives.
//
// gloo has neither sizes, nor cancelling, nor proofs, so a message travels like this:
//
//   announcement   tag and size, with the bytes of a short message -> the receiver's own memory; one is always expected from
//                  every rank, by a thread that waits for it
//   data           of a longer message, under a number of its own -> the receiver's tensor, once it has posted its receive
//
// So nothing is written to a tensor before a message for it is known, and a receive can be cancelled until then.
//
// gloo's own thread moves the bytes of all messages, whether or not a thread of the rank waits.
#pragma once

#include "comm/transport/transport_module.h"

namespace trivet::comm {

// Throws CommError (Rendezvous) if gloo cannot use this interface.
std::unique_ptr<UnconnectedTransport> open_gloo(const NetworkInterface& interface, int rank, int size);
std::string gloo_version();  // "gloo 0.5.0"

}  // namespace trivet::comm
