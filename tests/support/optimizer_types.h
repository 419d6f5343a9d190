// The optimizers of the table, for tests that hold for all of them.
#pragma once

#include <string>
#include <vector>

#include "engine/config/optimizer_traits.h"

namespace trivet::test {

inline std::vector<OptimizerType> optimizer_types() {
  std::vector<OptimizerType> types;
  for (const auto& [name, type] : EnumNames<OptimizerType>::table) types.push_back(type);
  return types;
}

inline std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, type] : EnumNames<OptimizerType>::table) names.emplace_back(name);
  return names;
}

// Those that tensor ranks can divide.
inline std::vector<OptimizerType> optimizer_types_of_tensor_ranks() {
  std::vector<OptimizerType> types = optimizer_types();
  std::erase_if(types, [](OptimizerType type) { return traits_of(type).whole_matrices; });
  return types;
}

}  // namespace trivet::test
