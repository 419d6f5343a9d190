// Decides how long ZeRO-3 weights stay whole (insert_unshard): when they are released after a use that is not the last.
#pragma once

#include <cstdint>

#include "core/enum_names.h"

namespace trivet::pipeline {

enum class UnshardRelease : uint8_t {
  Distance,    // if stage3_max_reuse_distance elements or more are used before the next use (as in DeepSpeed)
  Use,         // after each use, unless the next instruction uses them, too
  Microbatch,  // once no microbatch that has used them will use them again; it needs them from its forward to its backward
  Step,        // at the end of the program
};

}  // namespace trivet::pipeline

template <>
struct trivet::EnumNames<trivet::pipeline::UnshardRelease> {
  using UnshardRelease = pipeline::UnshardRelease;
  static constexpr std::array<std::pair<std::string_view, UnshardRelease>, 4> table{{{"distance", UnshardRelease::Distance},
                                                                                     {"use", UnshardRelease::Use},
                                                                                     {"microbatch", UnshardRelease::Microbatch},
                                                                                     {"step", UnshardRelease::Step}}};
};
