// Exports the functions that the program looks for in libtrivet_ucx.so.
#include "comm/ucx/ucx_transport.h"

extern "C" const trivet::comm::TransportModule* trivet_transport_module() {
  static const trivet::comm::TransportModule module{
      .interface = trivet::comm::kTransportInterface, .library = trivet::comm::ucx_version, .open = trivet::comm::open_ucx};
  return &module;
}
