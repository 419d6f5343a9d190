// The grid of ranks: named axes, and the conversion between ranks and coordinates. Arithmetic only.
//
// By default ranks count through the axes with tensor fastest and pipeline slowest (DeepSpeed's order pipe, data, model): ranks
// with adjacent numbers share a tensor group, which communicates most. parallel.rank_order changes this order.
#pragma once

#include <array>
#include <compare>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/axis.h"
#include "core/parameter_spec.h"
#include "engine/config/parallel_config.h"

namespace trivet {

// Where a rank is in the grid: one coordinate on each axis.
struct Coordinates {
  std::array<int, kAxes> by_axis{};  // in the order of Axis, whatever the order of ranks
  int& operator[](Axis axis) { return by_axis[static_cast<size_t>(axis)]; }
  int operator[](Axis axis) const { return by_axis[static_cast<size_t>(axis)]; }
  auto operator<=>(const Coordinates&) const = default;  // NOLINT(modernize-use-nullptr): in the generated comparison
  // Returns the same place with coordinate 0 on these axes.
  Coordinates without(AxisSet axes) const;
};

class Mesh {
 public:
  Mesh() = default;
  // The data axis is what remains of the world. Throws ConfigError if the world size is not divisible by the other axes.
  Mesh(const ParallelConfig& parallel, int world_size);

  int size() const;
  int size(Axis axis) const { return sizes_[axis]; }
  int expert_ranks() const { return experts_; }  // that share the experts of a block, in the view for experts
  int size(AxisSet axes) const;                  // their product
  const std::array<Axis, kAxes>& rank_order() const { return order_; }  // slowest first

  Coordinates coordinates_of(int rank) const;
  int coordinate_of(int rank, Axis axis) const { return coordinates_of(rank)[axis]; }
  int rank_at(const Coordinates& coordinates) const;

  // World ranks that differ from `rank` along these axes only, ascending; `rank` is one of them. Along one axis they are in the
  // order of their coordinates.
  std::vector<int> group_of(int rank, AxisSet axes) const;
  // All such groups, by their first rank; every world rank is in one of them.
  std::vector<std::vector<int>> groups(AxisSet axes) const;
  // Position of `rank` in its group along these axes.
  int index_of(int rank, AxisSet axes) const;
  // The grid along which ranks share parameters of this kind. For experts, the data and context ranks of a stage and a tensor
  // coordinate are data x expert: in the order of their numbers, consecutive ones have different experts. In the grid of dense
  // parameters the expert axis has size 1, so its place in rank_order does not matter.
  Mesh view(Sharing sharing) const;
  // World ranks at these coordinates, ascending: ranks_at({{Axis::Pipeline, 0}, {Axis::Tensor, 1}}).
  std::vector<int> ranks_at(std::initializer_list<std::pair<Axis, int>> coordinates) const;

 private:
  Coordinates sizes_{{1, 1, 1, 1, 1}};
  int experts_ = 1;  // ranks of the expert axis, in the view for experts
  // In the view for experts: [stage x tensor coordinate][place] world ranks, ascending; otherwise empty.
  std::vector<std::vector<int>> of_experts_;
  std::array<Axis, kAxes> order_{Axis::Pipeline, Axis::Data, Axis::Context, Axis::Expert, Axis::Tensor};
};

// Each group cut into runs of `length` ranks, which divides its size: {0 1 2 3} into {0 1} {2 3}.
std::vector<std::vector<int>> runs_of(const std::vector<std::vector<int>>& groups, int length);
// The ranks at the same place of each run of a group: {0 1 2 3} into {0 2} {1 3}.
std::vector<std::vector<int>> across_runs_of(const std::vector<std::vector<int>>& groups, int length);

// "pipeline 2 x data 3 x tensor 2"; axes of size 1 other than data are left out. "data 4, each 2 ranks share the experts".
std::string to_string(const Mesh& mesh);

// The ranks as a table, with a row for each pipeline coordinate and a column for each data coordinate; a cell holds the ranks
// along the other axes. `rows` names the rows ("stages 0, 2"); without it they are "stage 0", "stage 1" ... With more than 64
// ranks, the middle is left out.
//
//   data    |   0   |   1   |   2
//   stage 0 |  0  1 |  2  3 |  4  5
//   stage 1 |  6  7 |  8  9 | 10 11
std::string to_grid(const Mesh& mesh, std::span<const std::string> rows = {});

}  // namespace trivet
