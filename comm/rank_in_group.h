// Identifies a rank in a group: its place there and in the world, and how errors name it. This is the same for every transport.
#pragma once

#include <string>
#include <vector>

namespace trivet::comm {

struct RankInGroup {
  std::string group;
  int rank = 0;
  std::vector<int> world_ranks;  // by rank in the group
  std::string host;

  int size() const { return static_cast<int>(world_ranks.size()); }
  // "comm: group "data" rank 1 (world rank 3, host a): "
  std::string prefix() const;
  // The same rank in a group of some of these ranks, given as ascending group ranks, which include this one.
  RankInGroup in_subgroup(const std::vector<int>& ranks, const std::string& name) const;
};

}  // namespace trivet::comm
