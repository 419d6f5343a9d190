#include "engine/groups.h"

#include <algorithm>
#include <set>

namespace trivet {
namespace {

class GroupMaker {
 public:
  GroupMaker(comm::ProcessGroup& world, const GroupMakers& makers) : world_(world), makers_(makers) {}

  // All ranks go through all groups of one kind in the order of their first members, and each keeps its own.
  Groups::Group make(const std::string& name, const std::vector<std::vector<int>>& groups) {
    Groups::Group own;
    for (const std::vector<int>& members : groups) {
      if (members.size() == 1) {
        if (members.front() == world_.rank()) own = makers_.alone(name);
      } else if (auto group = world_.subgroup(members, name)) {
        own = std::move(group);
      }
    }
    // Placed after the loop, so that groups without common ranks are placed at the same time.
    return own ? placed(std::move(own)) : nullptr;
  }

 private:
  Groups::Group placed(Groups::Group host) const { return makers_.place ? makers_.place(std::move(host)) : std::move(host); }

  comm::ProcessGroup& world_;
  const GroupMakers& makers_;
};

// For each pipeline, the ranks at two places of its axis, in the order of `places`.
std::vector<std::vector<int>> pairs_at(const Mesh& mesh, std::pair<int, int> places) {
  std::vector<std::vector<int>> pairs;
  for (const int rank : mesh.ranks_at({{Axis::Pipeline, places.first}})) {
    Mesh::Coordinates coordinates = mesh.coordinates_of(rank);
    coordinates[static_cast<size_t>(Axis::Pipeline)] = places.second;
    pairs.push_back({rank, mesh.rank_at(coordinates)});
  }
  return pairs;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

// The groups of ranks that have the same blocks.
std::vector<std::vector<int>> parts_of(const Mesh& mesh) {
  std::vector<std::vector<int>> parts(static_cast<size_t>(mesh.size(Axis::Pipeline)));
  for (int rank = 0; rank < mesh.size(); ++rank)
    parts[static_cast<size_t>(mesh.coordinate_of(rank, Axis::Pipeline))].push_back(rank);
  return parts;
}

// Pairs of pipeline ranks that have neighbouring stages.
std::set<std::pair<int, int>> neighbours(const StageMap& stages) {
  std::set<std::pair<int, int>> pairs;
  for (int stage = 0; stage + 1 < stages.stages(); ++stage) {
    const int a = stages.rank_of_stage[static_cast<size_t>(stage)], b = stages.rank_of_stage[static_cast<size_t>(stage) + 1];
    if (a != b) pairs.insert(std::minmax(a, b));
  }
  return pairs;
}

}  // namespace

Groups make_groups(comm::ProcessGroup& world, const Mesh& mesh, const StageMap& stages,
                   const std::vector<std::pair<int, int>>& tied_ranks, const GroupMakers& makers) {
  GroupMaker maker(world, makers);
  const auto data = mesh.groups(Axis::Data), tensor = mesh.groups(Axis::Tensor);
  Groups groups;
  groups.control = maker.make("control", {all_ranks(world.size())});
  groups.data = maker.make("data", data);
  groups.gather = maker.make("data.gather", data);
  groups.reduce = maker.make("data.reduce", data);
  groups.part = maker.make("part", parts_of(mesh));
  groups.tensor = maker.make("tensor", tensor);
  groups.tensor_reduce = maker.make("tensor.reduce", tensor);
  const int place = mesh.coordinate_of(world.rank(), Axis::Pipeline);
  const auto other_of = [&](std::pair<int, int> pair) { return pair.first == place ? pair.second : pair.first; };
  for (const auto& pair : neighbours(stages)) {
    const auto ends = pairs_at(mesh, pair);
    for (Direction direction : {Direction::Forward, Direction::Backward}) {
      auto link = maker.make(direction == Direction::Forward ? "pipeline.forward" : "pipeline.backward", ends);
      if (link) groups.links[{direction, other_of(pair)}] = std::move(link);
    }
  }
  for (const auto& pair : tied_ranks)
    if (auto tie = maker.make("tied", pairs_at(mesh, pair))) groups.ties[other_of(pair)] = std::move(tie);
  return groups;
}

}  // namespace trivet
