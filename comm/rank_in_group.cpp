#include "comm/rank_in_group.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::comm {

std::string RankInGroup::prefix() const {
  return fmt::format("comm: group \"{}\" rank {} (world rank {}, host {}): ", group, rank, world_ranks[rank], host);
}

RankInGroup RankInGroup::in_subgroup(const std::vector<int>& ranks, const std::string& name) const {
  RankInGroup member{.group = name, .host = host};
  member.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  for (int r : ranks) member.world_ranks.push_back(world_ranks[r]);
  return member;
}

}  // namespace trivet::comm
