// The frequencies of rotary positions, and how they are changed for sequences longer than those of the first training.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/enum_names.h"

namespace trivet::model {

enum class RotaryScalingType : uint8_t { None, Linear, Llama3, Yarn, LongRope };

struct RotaryScaling {
  RotaryScalingType type = RotaryScalingType::None;
  double factor = 1;  // by which positions, or slow turns, are slowed down; LongRope: by which sequences are longer
  double low_frequency_factor = 1, high_frequency_factor = 4;  // Llama3, Yarn
  int64_t original_length = 8192;                              // Llama3, Yarn, LongRope: of sequences in the first training
  bool whole_pairs = true;                                     // Yarn: its interpolation begins and ends at a whole pair
  double attention_factor = 0;  // Yarn, LongRope: of rotated queries and keys; 0: follows from factor (magnitude_of)
  std::vector<double> short_factors, long_factors;  // LongRope: of each pair, by which it is slowed down

  bool operator==(const RotaryScaling&) const = default;
};

// The frequency of each pair, in radians per token: base^(-i / pairs) for pair i, which the scaling changes. `length`: tokens
// of the sequence.
//
//   Linear (Chen et al. 2023) divides every frequency by the factor.
//   Llama3 (Grattafiori et al. 2024) divides those that turn less than low_frequency_factor times within the original length,
//     keeps those that turn more than high_frequency_factor times, and interpolates in between, by the number of turns.
//   Yarn (Peng et al. 2023) does the same, but interpolates by the number of the pair.
//   LongRope (Ding et al. 2024) divides each by a factor of its own: a short one if the sequence is not longer than the
//     original length, otherwise a long one.
std::vector<double> rotary_frequencies(double base, int64_t pairs, const RotaryScaling& scaling, int64_t length);

// The factor of all that is rotated. If it is not stated, it is 1 + ln(factor) / 10 for Yarn and
// sqrt(1 + ln(factor) / ln(original_length)) for LongRope; for other types 1.
double magnitude_of(const RotaryScaling& scaling);

}  // namespace trivet::model

template <>
struct trivet::EnumNames<trivet::model::RotaryScalingType> {
  static constexpr std::array<std::pair<std::string_view, model::RotaryScalingType>, 5> table{
      {{"none", model::RotaryScalingType::None},
       {"linear", model::RotaryScalingType::Linear},
       {"llama3", model::RotaryScalingType::Llama3},
       {"yarn", model::RotaryScalingType::Yarn},
       {"longrope", model::RotaryScalingType::LongRope}}};
};
