#include "comm/hosts/host_map.h"

#include <algorithm>
#include <bit>

namespace trivet::comm {

int HostMap::fewest() const {
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  return static_cast<int>(std::min_element(ranks.begin(), ranks.end(), smaller)->size());
}

bool HostMap::in_rank_order() const {
  for (int next = 1; next < hosts(); ++next)
    if (ranks[next].front() < ranks[next - 1].back()) return false;
  return true;
}

bool HostMap::in_equal_trees() const {
  const size_t each = ranks.front().size();
  return in_rank_order() && std::has_single_bit(each) &&
         std::all_of(ranks.begin(), ranks.end(), [&](const auto& of_host) { return of_host.size() == each; });
}

HostMap map_hosts(const std::vector<int>& hosts, int self) {
  HostMap map;
  std::vector<int> known;  // hosts, by their place in the map
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    const auto place = static_cast<size_t>(std::find(known.begin(), known.end(), hosts[rank]) - known.begin());
    if (place == known.size()) {
      known.push_back(hosts[rank]);
      map.ranks.emplace_back();
    }
    if (rank == self) {
      map.host = static_cast<int>(place);
      map.line = static_cast<int>(map.ranks[place].size());
    }
    map.ranks[place].push_back(rank);
  }
  return map;
}

}  // namespace trivet::comm
