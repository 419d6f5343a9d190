#include "comm/nccl/seat.h"

#include <fmt/format.h>

namespace trivet::comm {

std::string NcclSeat::prefix() const {
  return fmt::format("comm: group \"{}\" rank {} (world rank {}, host {}): ", group, rank,
                     world_ranks[static_cast<size_t>(rank)], host);
}

}  // namespace trivet::comm
