// Names what is balanced when blocks are assigned to stages (pipeline/partition.h).
#pragma once

#include <cstdint>

#include "core/enum_names.h"

namespace trivet::pipeline {

enum class PartitionMethod : uint8_t {
  Uniform,     // the number of blocks
  Parameters,  // their parameters
  Type,        // the number of blocks whose type or name matches a regular expression
  Cost,        // the cost of computing them
};

}  // namespace trivet::pipeline

template <>
struct trivet::EnumNames<trivet::pipeline::PartitionMethod> {
  using PartitionMethod = pipeline::PartitionMethod;
  static constexpr std::array<std::pair<std::string_view, PartitionMethod>, 4> table{
      {{"uniform", PartitionMethod::Uniform},
       {"parameters", PartitionMethod::Parameters},
       {"type", PartitionMethod::Type},
       {"cost", PartitionMethod::Cost}}};
};
