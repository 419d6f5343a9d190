// Identifies a rank in the errors of an NCCL group.
#pragma once

#include <string>
#include <vector>

namespace trivet::comm {

struct NcclSeat {
  std::string group;
  int rank = 0;
  std::vector<int> world_ranks;  // of the group's ranks
  std::string host;

  int size() const { return static_cast<int>(world_ranks.size()); }
  // "comm: group "data" rank 1 (world rank 3, host a): "
  std::string prefix() const;
};

}  // namespace trivet::comm
