// The grid of ranks: named axes, and rank <-> coordinates. Arithmetic only.
//
// Ranks count through the axes with tensor fastest and pipeline slowest (DeepSpeed's order pipe, data, model): neighbours in
// rank share a tensor group, which talks most.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "engine/config/config.h"

namespace trivet {

enum class Axis : uint8_t { Pipeline, Data, Context, Expert, Tensor };
inline constexpr int kAxes = 5;

template <>
struct EnumNames<Axis> {
  static constexpr std::array<std::pair<std::string_view, Axis>, kAxes> table{{{"pipeline", Axis::Pipeline},
                                                                               {"data", Axis::Data},
                                                                               {"context", Axis::Context},
                                                                               {"expert", Axis::Expert},
                                                                               {"tensor", Axis::Tensor}}};
};

class Mesh {
 public:
  using Coordinates = std::array<int, kAxes>;

  Mesh() = default;
  // The data axis is what remains of the world. Throws ConfigError when nothing whole remains.
  Mesh(const ParallelConfig& parallel, int world_size);

  int size() const;
  int size(Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  Coordinates coordinates_of(int rank) const;
  int coordinate_of(int rank, Axis axis) const { return coordinates_of(rank)[static_cast<size_t>(axis)]; }
  int rank_at(const Coordinates& coordinates) const;
  // World ranks that differ from `rank` along `axis` only, ascending; `rank` is one of them.
  std::vector<int> group_of(int rank, Axis axis) const;

 private:
  std::array<int, kAxes> sizes_{1, 1, 1, 1, 1};
};

// "pipeline 2 x data 3 x tensor 2"; axes of size 1 other than data are left out.
std::string to_string(const Mesh& mesh);

}  // namespace trivet
