// All process groups of one rank, created once. Each stream that communicates has its own groups, because the operations of a
// group must keep the same order on all its ranks.
//
//   control        all ranks: loss, norm, and what else is exchanged once per step
//   data           the ranks that share each shard's parameters; data.gather and data.reduce are the same for the two streams
//   part           data x tensor: the ranks that have the same blocks
//   tensor         the ranks that share each split parameter; tensor.reduce is the same for the reduce stream
//   links          to each neighbouring pipeline rank, one for activations and one for gradients
//   tie            to the pipeline rank with the other end of a tied weight
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "engine/mesh.h"
#include "engine/program.h"

namespace trivet {

enum class Direction { Forward, Backward };

struct Groups {
  using Group = std::unique_ptr<comm::ProcessGroup>;
  Group control, data, gather, reduce, part, tensor, tensor_reduce;
  std::map<std::pair<Direction, int>, Group> links;  // key: direction and the neighbour's pipeline rank
  std::map<int, Group> ties;                         // key: the other pipeline rank
};

struct GroupMakers {
  std::function<Groups::Group(const std::string& name)> alone = [](const std::string& name) {
    return comm::make_single_group(name);
  };                                                       // a group of this rank alone
  std::function<Groups::Group(Groups::Group host)> place;  // on the device; empty: groups stay on the host
};
// Collective over `world`. `tied_ranks`: pairs of pipeline ranks, ascending.
Groups make_groups(comm::ProcessGroup& world, const Mesh& mesh, const StageMap& stages,
                   const std::vector<std::pair<int, int>>& tied_ranks, const GroupMakers& makers);

}  // namespace trivet
