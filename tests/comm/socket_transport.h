// A transport whose ranks are threads of one process: a pair of connected sockets between every two ranks. For tests only: it
// shows that groups need nothing but ordered messages.
//
// A message on a socket is its tag and its size (8 bytes each), then its bytes. Whoever waits moves data on all sockets of its
// rank.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport/transport.h"
#include "core/descriptor.h"

namespace trivet::comm {

class SocketPairs {
 public:
  explicit SocketPairs(int ranks);
  // The transport of one rank, which takes its ends of the pairs. Once for each rank, on any thread.
  std::unique_ptr<Transport> transport_of(int rank);

 private:
  std::vector<std::vector<Descriptor>> ends_;  // [rank][peer]
};

std::vector<std::unique_ptr<Transport>> socket_transports(int ranks);  // by rank

}  // namespace trivet::comm
