// Groups of ranks of a world that tests make.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/world.h"

namespace trivet::zero {

// The one of these groups that this rank is in.
inline std::unique_ptr<comm::ProcessGroup> own_group(comm::World& world, const std::vector<std::vector<int>>& groups) {
  std::unique_ptr<comm::ProcessGroup> own;
  for (const std::vector<int>& ranks : groups)
    if (auto group = world.group().subgroup(ranks, "some")) own = std::move(group);
  return own;
}

}  // namespace trivet::zero
