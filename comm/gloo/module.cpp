// Exports the functions that the program looks for in libtrivet_gloo.so.
#include "comm/gloo/gloo_transport.h"

extern "C" const trivet::comm::TransportModule* trivet_transport_module() {
  static const trivet::comm::TransportModule module{
      .interface = trivet::comm::kTransportInterface, .library = trivet::comm::gloo_version, .open = trivet::comm::open_gloo};
  return &module;
}
