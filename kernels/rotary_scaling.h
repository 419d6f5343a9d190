// How the frequencies of rotary positions are changed for sequences longer than those of the first training.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/enum_names.h"

namespace trivet::kernels {

enum class RotaryScalingType : uint8_t { None, Linear, Llama3 };

struct RotaryScaling {
  RotaryScalingType type = RotaryScalingType::None;
  double factor = 1;                                           // by which positions, or slow turns, are slowed down
  double low_frequency_factor = 1, high_frequency_factor = 4;  // Llama3
  int64_t original_length = 8192;                              // Llama3: of sequences in the first training

  bool operator==(const RotaryScaling&) const = default;
};

// Linear (Chen et al. 2023) divides every frequency by the factor. Llama3 (Grattafiori et al. 2024) divides those that turn
// less than low_frequency_factor times within the original length, keeps those that turn more than high_frequency_factor times,
// and interpolates in between. A frequency is in radians per token.
constexpr double scaled_frequency(double frequency, const RotaryScaling& scaling) {
  constexpr double kFullTurn = 6.283185307179586476925;
  if (scaling.type == RotaryScalingType::None) return frequency;
  if (scaling.type == RotaryScalingType::Linear) return frequency / scaling.factor;
  const double turns = static_cast<double>(scaling.original_length) * frequency / kFullTurn;
  if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
  if (turns > scaling.high_frequency_factor) return frequency;
  const double kept = (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

}  // namespace trivet::kernels

template <>
struct trivet::EnumNames<trivet::kernels::RotaryScalingType> {
  static constexpr std::array<std::pair<std::string_view, kernels::RotaryScalingType>, 3> table{
      {{"none", kernels::RotaryScalingType::None},
       {"linear", kernels::RotaryScalingType::Linear},
       {"llama3", kernels::RotaryScalingType::Llama3}}};
};
