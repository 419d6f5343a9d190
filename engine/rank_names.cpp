#include "engine/rank_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace trivet {

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string hosts_text(const std::vector<int>& ranks, std::span<const std::string> host_of_rank) {
  std::set<std::string> hosts;
  for (const int rank : ranks) hosts.insert(host_of_rank[rank]);
  return fmt::format("{}", fmt::join(hosts, ", "));
}

}  // namespace trivet
