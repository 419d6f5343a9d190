// Finds the ranks of a group that share a host.
#pragma once

#include <vector>

namespace trivet::comm {

struct HostMap {
  std::vector<std::vector<int>> ranks;  // [host][line]: group ranks, ascending; hosts in the order of their first ranks
  int host = 0, line = 0;               // this rank's

  int hosts() const { return static_cast<int>(ranks.size()); }
  const std::vector<int>& here() const { return ranks[host]; }
  // The number of ranks of the host that has the fewest.
  int fewest() const;
  // Checks whether all ranks of a host come before those of the next; then sums in rank order can go host by host.
  bool in_rank_order() const;
  // Checks whether every host has the same number of ranks, a power of two. Then a tree sum over all ranks is a tree
  // over hosts of trees over the ranks of a host.
  bool in_equal_trees() const;
};

// `hosts[r]` identifies the host of group rank r.
HostMap map_hosts(const std::vector<int>& hosts, int self);

}  // namespace trivet::comm
