#include "tests/comm/ucx_transports.h"

#include <stdexcept>

#ifdef TRIVET_HAS_UCX
#include "comm/ucx/ucx_transport.h"
#endif

namespace trivet::comm {

#ifdef TRIVET_HAS_UCX
namespace {

std::vector<std::unique_ptr<Transport>> transports_of(int ranks, int strangers) {
  std::vector<std::unique_ptr<UnconnectedTransport>> unconnected;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    unconnected.push_back(open_ucx({.name = "lo", .address = "127.0.0.1"}, rank, ranks));
    addresses.push_back(unconnected.back()->address());
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) {
    const uint64_t key = rank < ranks - strangers ? 0x5ec2e7 : 0;
    transports.push_back(unconnected[rank]->connect(addresses, key));
  }
  return transports;
}

}  // namespace

std::vector<std::unique_ptr<Transport>> ucx_transports(int ranks) { return transports_of(ranks, 0); }
std::vector<std::unique_ptr<Transport>> ucx_transports_and_a_stranger(int ranks) { return transports_of(ranks + 1, 1); }
#else
std::vector<std::unique_ptr<Transport>> ucx_transports(int) { throw std::logic_error("built without UCX"); }
#endif

}  // namespace trivet::comm
