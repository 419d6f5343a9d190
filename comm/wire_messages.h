// The messages of the control plane (control/message.h) as frames. Decoding is pure.
//
// Input from a peer is not trusted, even if the peer knows the secret: every length, count, rank and exit code is checked here,
// before anything acts on it. Bad input throws a CommError (Rendezvous) whose text begins with "sent"; the caller knows the
// sender.
#pragma once

#include "comm/control/message.h"
#include "comm/frame.h"

namespace trivet::comm::control {

// Long reasons and causes are cut. The host of an accusation is not sent.
Frame encode(const Message& message);

// `world_size` is this rank's: whoever is accused, waited for or asked for is one of so many ranks. A rank that asks to join
// may claim anything; what the root says to it is a refusal. A table has its ranks in order, and each has the node of a host.
// The code of a refusal or an accusation is that of a failure, never 0.
Message decode(const Frame& frame, int world_size);

}  // namespace trivet::comm::control
