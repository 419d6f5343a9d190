// The devices that hold memory and run kernels. Meta has shapes but no memory: the planner runs the same layer code on it.
#pragma once

#include <cstdint>

#include "core/enum_names.h"

namespace trivet {

enum class Device : uint8_t { Cpu, Cuda, Meta };

template <>
struct EnumNames<Device> {
  static constexpr std::array<std::pair<std::string_view, Device>, 3> table{
      {{"cpu", Device::Cpu}, {"cuda", Device::Cuda}, {"meta", Device::Meta}}};
};

}  // namespace trivet
