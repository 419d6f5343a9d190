#include "engine/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trivet {
namespace {

// "pipeline 2 x tensor 2": the axes to which the config gives a size other than 1.
std::string given_axes(const ParallelConfig& parallel) {
  std::string text;
  for (const auto& [name, size] :
       {std::pair{"pipeline", parallel.pipeline}, {"context", parallel.context}, {"tensor", parallel.tensor}})
    if (size != 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  return text.empty() ? "data 1" : text;
}

int64_t product_of_given_axes(const ParallelConfig& parallel) {
  int64_t product = 1;
  for (const int64_t size : {parallel.pipeline, parallel.context, parallel.tensor})
    if (size < 1 || __builtin_mul_overflow(product, size, &product))
      throw ConfigError(fmt::format(
          "mesh: {} is not a grid of ranks; make each axis at least 1 and their product less than 2^63", given_axes(parallel)));
  return product;
}

void check_world(const ParallelConfig& parallel, int64_t others, int world_size) {
  if (world_size >= others && world_size % others == 0) return;
  const int64_t below = world_size / others * others;
  throw ConfigError(fmt::format("mesh: {} needs {} ranks, but the job has {}; start {}{} ranks or make an axis smaller",
                                given_axes(parallel),
                                others > world_size ? std::to_string(others) : fmt::format("a multiple of {}", others),
                                world_size, below > 0 ? fmt::format("{} or ", below) : "", below + others));
}

}  // namespace

Mesh::Mesh(const ParallelConfig& parallel, int world_size) {
  const int64_t others = product_of_given_axes(parallel);
  check_world(parallel, others, world_size);
  sizes_[Axis::Pipeline] = static_cast<int>(parallel.pipeline);
  sizes_[Axis::Data] = static_cast<int>(world_size / others);
  sizes_[Axis::Context] = static_cast<int>(parallel.context);
  sizes_[Axis::Tensor] = static_cast<int>(parallel.tensor);
  experts_ = static_cast<int>(parallel.expert);
  if (const int holders = size({Axis::Data, Axis::Context}); experts_ < 1 || holders % experts_ != 0)
    throw ConfigError(fmt::format("mesh: parallel.expert {} does not divide the {} data and context ranks; use a divisor",
                                  experts_, holders));
  // Axes that rank_order leaves out must have size 1, so their place does not matter.
  const auto left_out = [&](Axis axis) { return std::ranges::find(parallel.rank_order, axis) == parallel.rank_order.end(); };
  const auto named = std::stable_partition(order_.begin(), order_.end(), left_out);
  if (order_.end() - named != static_cast<std::ptrdiff_t>(parallel.rank_order.size()))
    throw ConfigError("mesh: parallel.rank_order names an axis twice");
  std::copy(parallel.rank_order.begin(), parallel.rank_order.end(), named);
  for (auto axis = order_.begin(); axis != named; ++axis)
    if (size(*axis) != 1)
      throw ConfigError(
          fmt::format("mesh: parallel.rank_order leaves out \"{}\", which has {} ranks; name it", name_of(*axis), size(*axis)));
}

int Mesh::size() const {
  int product = 1;
  for (const int size : sizes_.by_axis) product *= size;
  return product;
}

Coordinates Coordinates::without(AxisSet axes) const {
  Coordinates others = *this;
  for (const auto& [name, axis] : EnumNames<Axis>::table)
    if (axes.contains(axis)) others[axis] = 0;
  return others;
}

Coordinates Mesh::coordinates_of(int rank) const {
  Coordinates coordinates;
  for (size_t part = 0; part < of_experts_.size(); ++part) {
    const auto place = std::ranges::lower_bound(of_experts_[part], rank);
    if (place == of_experts_[part].end() || *place != rank) continue;
    const auto index = static_cast<int>(place - of_experts_[part].begin());
    coordinates[Axis::Pipeline] = static_cast<int>(part) / size(Axis::Tensor);
    coordinates[Axis::Tensor] = static_cast<int>(part) % size(Axis::Tensor);
    coordinates[Axis::Data] = index / experts_;
    coordinates[Axis::Expert] = index % experts_;
    return coordinates;
  }
  for (auto axis = order_.rbegin(); axis != order_.rend(); ++axis) {
    coordinates[*axis] = rank % size(*axis);
    rank /= size(*axis);
  }
  return coordinates;
}

int Mesh::rank_at(const Coordinates& coordinates) const {
  if (!of_experts_.empty())
    return of_experts_[coordinates[Axis::Pipeline] * size(Axis::Tensor) + coordinates[Axis::Tensor]]
                      [coordinates[Axis::Data] * experts_ + coordinates[Axis::Expert]];
  int rank = 0;
  for (const Axis axis : order_) rank = rank * size(axis) + coordinates[axis];
  return rank;
}

std::vector<int> Mesh::group_of(int rank, AxisSet axes) const {
  std::vector<int> ranks{rank_at(coordinates_of(rank).without(axes))};
  for (const auto& [name, axis] : EnumNames<Axis>::table) {
    if (!axes.contains(axis)) continue;
    std::vector<int> wider;
    for (const int known : ranks) {
      Coordinates coordinates = coordinates_of(known);
      for (coordinates[axis] = 0; coordinates[axis] < size(axis); ++coordinates[axis]) wider.push_back(rank_at(coordinates));
    }
    ranks = std::move(wider);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(AxisSet axes) const {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < size(); ++rank)
    if (const Coordinates coordinates = coordinates_of(rank); coordinates == coordinates.without(axes))
      groups.push_back(group_of(rank, axes));
  return groups;
}

int Mesh::size(AxisSet axes) const {
  int product = 1;
  for (const auto& [name, axis] : EnumNames<Axis>::table) product *= axes.contains(axis) ? size(axis) : 1;
  return product;
}

int Mesh::index_of(int rank, AxisSet axes) const {
  const std::vector<int> group = group_of(rank, axes);
  return static_cast<int>(std::ranges::find(group, rank) - group.begin());
}

Mesh Mesh::view(Sharing sharing) const {
  if (sharing == Sharing::Dense) return *this;
  Mesh experts = *this;
  experts.sizes_ = {{1, 1, 1, 1, 1}};
  experts.sizes_[Axis::Pipeline] = size(Axis::Pipeline);
  experts.sizes_[Axis::Data] = size({Axis::Data, Axis::Context}) / experts_;
  experts.sizes_[Axis::Expert] = experts_;
  experts.sizes_[Axis::Tensor] = size(Axis::Tensor);
  for (int stage = 0; stage < size(Axis::Pipeline); ++stage)
    for (int tensor = 0; tensor < size(Axis::Tensor); ++tensor)
      experts.of_experts_.push_back(ranks_at({{Axis::Pipeline, stage}, {Axis::Tensor, tensor}}));
  return experts;
}

std::vector<int> Mesh::ranks_at(std::initializer_list<std::pair<Axis, int>> coordinates) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (std::ranges::all_of(coordinates, [&](const auto& at) { return coordinate_of(rank, at.first) == at.second; }))
      ranks.push_back(rank);
  return ranks;
}

std::vector<std::vector<int>> runs_of(const std::vector<std::vector<int>>& groups, int length) {
  std::vector<std::vector<int>> runs;
  for (const std::vector<int>& group : groups)
    for (auto first = group.begin(); first != group.end(); first += length) runs.emplace_back(first, first + length);
  return runs;
}

std::vector<std::vector<int>> across_runs_of(const std::vector<std::vector<int>>& groups, int length) {
  std::vector<std::vector<int>> across;
  for (const std::vector<int>& group : groups)
    for (int place = 0; place < length; ++place) {
      std::vector<int>& ranks = across.emplace_back();
      for (size_t i = place; i < group.size(); i += length) ranks.push_back(group[i]);
    }
  return across;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (const auto& [name, axis] : EnumNames<Axis>::table) {
    if (mesh.size(axis) == 1 && axis != Axis::Data) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, mesh.size(axis));
  }
  if (mesh.expert_ranks() > 1) text += fmt::format(", each {} ranks share the experts", mesh.expert_ranks());
  return text;
}

}  // namespace trivet
