// The axes of the mesh, in the default order in which ranks count through them: slowest first, fastest last.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/enum_names.h"

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

// A set of axes: the ranks of a group differ along these axes and no others.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(bit(axis)) {}
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }
  static constexpr AxisSet all() { return AxisSet((1u << kAxes) - 1); }

  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr AxisSet without(AxisSet other) const { return AxisSet(bits_ & ~other.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  constexpr explicit AxisSet(unsigned bits) : bits_(bits) {}
  static constexpr unsigned bit(Axis axis) { return 1u << static_cast<unsigned>(axis); }

  unsigned bits_ = 0;
};

}  // namespace trivet
