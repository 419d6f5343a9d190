#include "engine/groups.h"

#include <algorithm>
#include <functional>
#include <set>

namespace trivet {
namespace {

class GroupMaker {
 public:
  GroupMaker(comm::ProcessGroup& world, const GroupMakers& makers) : world_(world), makers_(makers) {}

  // All ranks go through all groups of one kind in the order of their first members, and keep their own.
  Groups::Group make(const std::string& name, const std::function<std::vector<int>(int rank)>& members_of) {
    Groups::Group own;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const std::vector<int> members = members_of(rank);
      if (members.empty() || members.front() != rank) continue;
      if (members.size() == 1) {
        if (rank == world_.rank()) own = makers_.alone(name);
      } else if (auto group = world_.subgroup(members, name)) {
        own = std::move(group);
      }
    }
    // Behind the loop: groups without common ranks are placed at the same time.
    return own ? placed(std::move(own)) : nullptr;
  }

 private:
  Groups::Group placed(Groups::Group host) const { return makers_.place ? makers_.place(std::move(host)) : std::move(host); }

  comm::ProcessGroup& world_;
  const GroupMakers& makers_;
};

// The ranks of `rank`'s pipeline that are at two places of the pipeline axis; none unless `rank` is one of them.
std::vector<int> pair_of(const Mesh& mesh, int rank, std::pair<int, int> places) {
  Mesh::Coordinates coordinates = mesh.coordinates_of(rank);
  int& place = coordinates[static_cast<size_t>(Axis::Pipeline)];
  if (place != places.first && place != places.second) return {};
  std::vector<int> ranks;
  for (int end : {places.first, places.second}) {
    place = end;
    ranks.push_back(mesh.rank_at(coordinates));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

std::vector<int> part_of(const Mesh& mesh, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < mesh.size(); ++other)
    if (mesh.coordinate_of(other, Axis::Pipeline) == mesh.coordinate_of(rank, Axis::Pipeline)) ranks.push_back(other);
  return ranks;
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
  const auto along = [&](Axis axis) { return [&mesh, axis](int rank) { return mesh.group_of(rank, axis); }; };
  Groups groups;
  groups.control = maker.make("control", [&](int) { return all_ranks(world.size()); });
  groups.data = maker.make("data", along(Axis::Data));
  groups.gather = maker.make("data.gather", along(Axis::Data));
  groups.reduce = maker.make("data.reduce", along(Axis::Data));
  groups.part = maker.make("part", [&](int rank) { return part_of(mesh, rank); });
  groups.tensor = maker.make("tensor", along(Axis::Tensor));
  groups.tensor_reduce = maker.make("tensor.reduce", along(Axis::Tensor));
  const int place = mesh.coordinate_of(world.rank(), Axis::Pipeline);
  const auto other_of = [&](std::pair<int, int> pair) { return pair.first == place ? pair.second : pair.first; };
  for (const auto& pair : neighbours(stages))
    for (Direction direction : {Direction::Forward, Direction::Backward}) {
      auto link = maker.make(direction == Direction::Forward ? "pipeline.forward" : "pipeline.backward",
                             [&](int rank) { return pair_of(mesh, rank, pair); });
      if (link) groups.links[{direction, other_of(pair)}] = std::move(link);
    }
  for (const auto& pair : tied_ranks)
    if (auto tie = maker.make("tied", [&](int rank) { return pair_of(mesh, rank, pair); }))
      groups.ties[other_of(pair)] = std::move(tie);
  return groups;
}

}  // namespace trivet
