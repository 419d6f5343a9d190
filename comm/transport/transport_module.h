// The interface to modules with a transport between hosts: libtrivet_ucx.so (core/module_file.h), which is opened only for a
// job on several hosts.
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
  // once. Sends nothing: connections are made when they are first used.
  virtual std::unique_ptr<Transport> connect(int rank, std::vector<std::string> addresses, uint64_t key) = 0;
};

struct TransportModule {
  const char* interface = "";  // must be kTransportInterface
  // The library and its version: "UCX 1.13.1".
  std::string (*library)() = nullptr;
  // Throws CommError (Rendezvous) if the library cannot use this interface.
  std::unique_ptr<UnconnectedTransport> (*open)(const NetworkInterface& interface) = nullptr;
};

// Must change with every change of the interface that module and program share.
inline constexpr const char* kTransportInterface = "trivet 0.1.0, transport 2";
inline constexpr const char* kTransportModuleEntry = "trivet_transport_module";  // const TransportModule* (*)()

// `name` is that of a transport: "ucx". TRIVET_UCX_MODULE names another file. Throws CommError (Rendezvous) if there is no such
// module, naming the places that were tried and the package to install, and (VersionSkew) if it has a different version.
const TransportModule& transport_module(const std::string& name);

}  // namespace trivet::comm
