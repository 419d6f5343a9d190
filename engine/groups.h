// All process groups of one rank, made once. Each stream that communicates has groups of its own: the operations of one group
// keep one order on all its ranks.
//
//   control        all ranks: loss, norm, what is said once a step
//   data           the ranks that share each shard's parameters; data.gather and data.reduce the same for the two streams
//   part           data x tensor: the ranks that have the same blocks
//   tensor         the ranks that share each split parameter; tensor.reduce the same on the reduce stream
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
  };                                                       // of this rank only
  std::function<Groups::Group(Groups::Group host)> place;  // for tensors of a device; empty: they are the host's
};
// Collective over `world`. `tied_ranks`: pairs of pipeline ranks, ascending.
Groups make_groups(comm::ProcessGroup& world, const Mesh& mesh, const StageMap& stages,
                   const std::vector<std::pair<int, int>>& tied_ranks, const GroupMakers& makers);

}  // namespace trivet
