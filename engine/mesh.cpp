#include "engine/mesh.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trivet {

Mesh::Mesh(const ParallelConfig& parallel, int world_size) {
  const int64_t others = parallel.pipeline * parallel.context * parallel.expert * parallel.tensor;
  if (others <= 0 || world_size % others != 0 || world_size < others)
    throw ConfigError(fmt::format(
        "mesh: pipeline {} x context {} x expert {} x tensor {} needs a multiple of {} ranks, {} were started; start {} "
        "ranks or make an axis smaller",
        parallel.pipeline, parallel.context, parallel.expert, parallel.tensor, others, world_size,
        (world_size / std::max<int64_t>(others, 1) + 1) * others));
  sizes_ = {static_cast<int>(parallel.pipeline), static_cast<int>(world_size / others), static_cast<int>(parallel.context),
            static_cast<int>(parallel.expert), static_cast<int>(parallel.tensor)};
}

int Mesh::size() const {
  int product = 1;
  for (int size : sizes_) product *= size;
  return product;
}

Mesh::Coordinates Mesh::coordinates_of(int rank) const {
  Coordinates coordinates{};
  for (int axis = kAxes - 1; axis >= 0; --axis) {
    coordinates[static_cast<size_t>(axis)] = rank % sizes_[static_cast<size_t>(axis)];
    rank /= sizes_[static_cast<size_t>(axis)];
  }
  return coordinates;
}

int Mesh::rank_at(const Coordinates& coordinates) const {
  int rank = 0;
  for (int axis = 0; axis < kAxes; ++axis)
    rank = rank * sizes_[static_cast<size_t>(axis)] + coordinates[static_cast<size_t>(axis)];
  return rank;
}

std::vector<int> Mesh::group_of(int rank, Axis axis) const {
  Coordinates coordinates = coordinates_of(rank);
  std::vector<int> ranks;
  for (int i = 0; i < size(axis); ++i) {
    coordinates[static_cast<size_t>(axis)] = i;
    ranks.push_back(rank_at(coordinates));
  }
  return ranks;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (const auto& [name, axis] : EnumNames<Axis>::table) {
    if (mesh.size(axis) == 1 && axis != Axis::Data) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, mesh.size(axis));
  }
  return text;
}

}  // namespace trivet
