// The order in which floats are added over several hosts (docs/communication.md). All ranks of a job choose the same.
#pragma once

#include <cstdint>

#include "core/enum_names.h"

namespace trivet::comm {

// Chain: in rank order, so that the bits do not depend on which rank is on which host. Exchange: each host adds its own ranks
// in order, and then these sums are added in the order of the hosts; fewer bytes cross, and no host waits for the one before
// it.
enum class HostSums : uint8_t { Chain, Exchange };

}  // namespace trivet::comm

namespace trivet {
template <>
struct EnumNames<comm::HostSums> {
  static constexpr std::array<std::pair<std::string_view, comm::HostSums>, 2> table{
      {{"chain", comm::HostSums::Chain}, {"exchange", comm::HostSums::Exchange}}};
};
}  // namespace trivet
