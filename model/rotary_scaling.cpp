#include "model/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trivet::model {
namespace {

double turns_of(double frequency, const RotaryScaling& scaling) {
  return static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
}

double llama3_frequency(double frequency, const RotaryScaling& scaling) {
  const double turns = turns_of(frequency, scaling);
  if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
  if (turns > scaling.high_frequency_factor) return frequency;
  const double kept = (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

// The pairs between which Yarn interpolates: those before the first keep their frequency, those after the last are slowed down.
struct YarnPairs {
  double first, last;

  YarnPairs(double base, double pairs, const RotaryScaling& scaling) {
    // The pair that turns so many times within the original length; most often between two pairs.
    const auto pair_of = [&](double turns) { return pairs * std::log(turns_of(1 / turns, scaling)) / std::log(base); };
    first = pair_of(scaling.high_frequency_factor), last = pair_of(scaling.low_frequency_factor);
    if (scaling.whole_pairs) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0), last = std::min(last, 2 * pairs - 1);
    if (first == last) last += 0.001;
  }

  double slowed_share(double pair) const { return std::clamp((pair - first) / (last - first), 0.0, 1.0); }
};

void slow_down_as_yarn(std::vector<double>& frequencies, double base, const RotaryScaling& scaling) {
  const YarnPairs pairs(base, static_cast<double>(frequencies.size()), scaling);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = pairs.slowed_share(static_cast<double>(i));
    frequencies[i] = frequencies[i] / scaling.factor * slowed + frequencies[i] * (1 - slowed);
  }
}

}  // namespace

std::vector<double> rotary_frequencies(double base, int64_t pairs, const RotaryScaling& scaling, int64_t length) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  switch (scaling.type) {
    case RotaryScalingType::None: break;
    case RotaryScalingType::Linear:
      for (double& frequency : frequencies) frequency /= scaling.factor;
      break;
    case RotaryScalingType::Llama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(frequency, scaling);
      break;
    case RotaryScalingType::Yarn: slow_down_as_yarn(frequencies, base, scaling); break;
    case RotaryScalingType::LongRope: {
      const std::vector<double>& factors = length > scaling.original_length ? scaling.long_factors : scaling.short_factors;
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors.at(i);
    }
  }
  return frequencies;
}

double magnitude_of(const RotaryScaling& scaling) {
  const bool yarn = scaling.type == RotaryScalingType::Yarn;
  if (!yarn && scaling.type != RotaryScalingType::LongRope) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (scaling.factor <= 1) return 1;
  const double longer = std::log(scaling.factor);
  return yarn ? 1 + longer / 10 : std::sqrt(1 + longer / std::log(static_cast<double>(scaling.original_length)));
}

}  // namespace trivet::model
