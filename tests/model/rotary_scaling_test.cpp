// Compares frequencies with the formulas of the papers and with numbers that transformers computes (functions
// _compute_*_parameters of modeling_rope_utils, version 5.24, in float32: hence the tolerance).
#include "model/rotary_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trivet::model {
namespace {

void expect_frequencies(const std::vector<double>& frequencies, const std::vector<double>& expected) {
  ASSERT_EQ(frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(frequencies[i], expected[i], 4e-7 * expected[i]) << "pair " << i;
}

TEST(RotaryScaling, WithoutItFrequenciesFallFromOneToNearlyTheInverseOfTheBase) {
  expect_frequencies(rotary_frequencies(10000, 4, {}, 100), {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(magnitude_of({}), 1);
}

TEST(RotaryScaling, LinearDividesAllFrequencies) {
  expect_frequencies(rotary_frequencies(10000, 2, {.type = RotaryScalingType::Linear, .factor = 2.5}, 100), {0.4, 0.004});
  EXPECT_EQ(magnitude_of({.type = RotaryScalingType::Linear, .factor = 2.5, .attention_factor = 3}), 1);
}

// In terms of wavelengths, as Llama 3.1 was published. With base 10000 and 24 pairs, some turn fast, some slowly and some in
// between.
double llama3_frequency_by_wavelength(double frequency, const RotaryScaling& scaling) {
  const double length = static_cast<double>(scaling.original_length), wavelength = 2 * std::acos(-1.0) / frequency;
  if (wavelength > length / scaling.low_frequency_factor) return frequency / scaling.factor;
  if (wavelength < length / scaling.high_frequency_factor) return frequency;
  const double smooth =
      (length / wavelength - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

TEST(RotaryScaling, Llama3SlowsDownThePairsThatTurnSlowly) {
  for (const RotaryScaling& scaling :
       {RotaryScaling{.type = RotaryScalingType::Llama3, .factor = 8, .original_length = 512},
        RotaryScaling{.type = RotaryScalingType::Llama3, .factor = 32, .high_frequency_factor = 2, .original_length = 64}}) {
    std::vector<double> expected = rotary_frequencies(10000, 24, {}, 100);
    for (double& frequency : expected) frequency = llama3_frequency_by_wavelength(frequency, scaling);
    expect_frequencies(rotary_frequencies(10000, 24, scaling, 100), expected);
  }
}

TEST(RotaryScaling, YarnIsThatOfTransformers) {
  const RotaryScaling scaling{
      .type = RotaryScalingType::Yarn, .factor = 4, .high_frequency_factor = 32, .original_length = 2048};
  expect_frequencies(
      rotary_frequencies(10000, 16, scaling, 100),
      {1, 0.562341332, 0.316227764, 0.177827939, 0.100000001, 0.0502090417, 0.02484647, 0.0120668961, 0.00571428565,
       0.0026108704, 0.00112938497, 0.000444569858, 0.000250000012, 0.000140585325, 7.90569466e-05, 4.44569851e-05});
}

// The keys of GPT-OSS.
TEST(RotaryScaling, YarnMayInterpolateFromPlacesBetweenPairs) {
  const RotaryScaling scaling{.type = RotaryScalingType::Yarn,
                              .factor = 32,
                              .high_frequency_factor = 32,
                              .original_length = 4096,
                              .whole_pairs = false};
  expect_frequencies(rotary_frequencies(150000, 12, scaling, 100),
                     {1, 0.370389819, 0.137188628, 0.0508132726, 0.0137774786, 0.0031677403, 0.000456483918, 2.98857085e-05,
                      1.10693582e-05, 4.09997847e-06, 1.51859081e-06, 5.62470291e-07});
}

// No pair turns even twice within 8 tokens.
TEST(RotaryScaling, YarnWithoutPairsInBetweenKeepsOnlyTheFirst) {
  const RotaryScaling scaling{.type = RotaryScalingType::Yarn,
                              .factor = 2,
                              .low_frequency_factor = 2,
                              .high_frequency_factor = 4,
                              .original_length = 8};
  expect_frequencies(rotary_frequencies(10000, 4, scaling, 8), {1, 0.05, 0.005, 0.0005});
}

TEST(RotaryScaling, TheMagnitudeFollowsFromTheFactorOrIsStated) {
  RotaryScaling yarn{.type = RotaryScalingType::Yarn, .factor = 4};
  EXPECT_NEAR(magnitude_of(yarn), 1.138629436111989, 1e-15);
  yarn.factor = 1;
  EXPECT_EQ(magnitude_of(yarn), 1);
  yarn.attention_factor = 0.75;
  EXPECT_EQ(magnitude_of(yarn), 0.75);
  RotaryScaling longrope{.type = RotaryScalingType::LongRope, .factor = 32, .original_length = 4096};
  EXPECT_NEAR(magnitude_of(longrope), 1.1902380714238083, 1e-15);
  longrope.attention_factor = 2;
  EXPECT_EQ(magnitude_of(longrope), 2);
}

TEST(RotaryScaling, LongRopeHasFactorsForShortAndForLongSequences) {
  const RotaryScaling scaling{.type = RotaryScalingType::LongRope,
                              .factor = 2,
                              .original_length = 16,
                              .short_factors = {1, 1.25},
                              .long_factors = {2, 40}};
  expect_frequencies(rotary_frequencies(10000, 2, scaling, 16), {1, 0.008});
  expect_frequencies(rotary_frequencies(10000, 2, scaling, 17), {0.5, 0.00025});
  EXPECT_THROW(rotary_frequencies(10000, 3, scaling, 16), std::out_of_range);
}

}  // namespace
}  // namespace trivet::model
