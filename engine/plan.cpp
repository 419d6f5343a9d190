#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace trivet {

const comm::Traffic& RankPlan::traffic_of(std::string_view line) const {
  const auto found = std::ranges::find(traffic, line, [](const auto& entry) { return std::string_view(entry.first); });
  if (found == traffic.end()) throw std::logic_error(fmt::format("plan: no line \"{}\" of traffic", line));
  return found->second;
}

Coordinates plan_coordinates(const Mesh& mesh, const Mesh& of_experts, int world_rank) {
  Coordinates coordinates = mesh.coordinates_of(world_rank).without(equal_plans());
  coordinates[Axis::Expert] = of_experts.coordinate_of(world_rank, Axis::Expert);
  return coordinates;
}

const RankPlan& Plan::rank(int world_rank) const {
  return rank(plan_coordinates(mesh, config.parallel.expert > 1 ? mesh.view(Sharing::Expert) : mesh, world_rank));
}

const RankPlan& Plan::rank(const Coordinates& coordinates) const {
  const Coordinates wanted = coordinates.without(equal_plans());
  const auto found = std::ranges::lower_bound(ranks, wanted, {}, &RankPlan::coordinates);
  if (found == ranks.end() || found->coordinates != wanted)
    throw std::logic_error("plan: there is no rank at these coordinates");
  return *found;
}

BatchLayout Plan::batch_layout(int world_rank) const {
  return {.micro_batch = batch.micro_batch_size,
          .accumulation = batch.gradient_accumulation_steps,
          .data_size = mesh.size(batch_axes()),
          .data_rank = mesh.index_of(world_rank, batch_axes())};
}

int Plan::shards(Sharing sharing) const {
  return sharing == Sharing::Dense ? sharding().shards : mesh.view(sharing).size(equal_over(sharing));
}

const RankPlan& Plan::heaviest() const {
  return *std::max_element(ranks.begin(), ranks.end(),
                           [](const RankPlan& a, const RankPlan& b) { return a.memory.total() < b.memory.total(); });
}

std::vector<ChannelSpec> Plan::channels() const {
  std::set<std::pair<int, int>> tied;  // pairs of pipeline ranks
  for (const RankPlan& rank : ranks)
    for (const zero::TiedWeight& weight : rank.layout.ties)
      if (weight.owner_rank != weight.user_rank) tied.insert(std::minmax(weight.owner_rank, weight.user_rank));
  return channel_table(config, mesh, stages, {tied.begin(), tied.end()});
}

}  // namespace trivet
