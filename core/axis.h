// The axes of the mesh, in the default order in which ranks count through them: slowest first, fastest last.
#pragma once

#include <cstdint>

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

}  // namespace trivet
