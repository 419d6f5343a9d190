// The interface to modules with a transport between hosts, libtrivet_ucx.so and libtrivet_gloo.so (core/module_file.h). The one
// that a job on several hosts uses is opened; a job on one host opens none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/network_interface.h"
#include "comm/transport/transport.h"

namespace trivet::comm {

// A rank's transport before it knows the other ranks: they need its address, and it needs theirs.
class UnconnectedTransport {
 public:
  static constexpr size_t kLongestAddress = 4096;

  virtual ~UnconnectedTransport() = default;
  virtual const std::string& address() const = 0;  // bytes that only the same transport understands
  // `addresses` by world rank. `key` is a random number that only the job's ranks know: a message of a sender with another key
  // is not received, so that whoever merely reaches the network address cannot put a message in the place of a rank's. Call it
  // once, on all ranks at the same time: a transport may connect them now, or when a connection is first used. A rank with
  // which there is no connection is gone from the beginning.
  virtual std::unique_ptr<Transport> connect(std::vector<std::string> addresses, uint64_t key) = 0;
};

struct TransportModule {
  const char* interface = "";  // must be kTransportInterface
  // The library and its version: "UCX 1.13.1".
  std::string (*library)() = nullptr;
  // `rank` of `size` is this rank in the world. Throws CommError (Rendezvous) if the library cannot use this interface.
  std::unique_ptr<UnconnectedTransport> (*open)(const NetworkInterface& interface, int rank, int size) = nullptr;
};

// Must change with every change of the interface that module and program share.
inline constexpr const char* kTransportInterface = "trivet 0.1.0, transport 3";
inline constexpr const char* kTransportModuleEntry = "trivet_transport_module";  // const TransportModule* (*)()

// `name` is that of a transport: "ucx", "gloo", or "auto", which is "ucx". TRIVET_UCX_MODULE and TRIVET_GLOO_MODULE name other
// files. Throws CommError (Rendezvous) if there is no such module, naming the places that were tried and the package to
// install, and (VersionSkew) if it has a different version.
const TransportModule& transport_module(const std::string& name);

}  // namespace trivet::comm
