#include <cmath>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::channel_norm_test {
namespace {

// The inputs of a norm of images, and what it should give, computed in double from the definition.
struct Images {
  DType dtype;
  Shape shape;
  int64_t groups;  // NormSets::kBatch: batch norm
  HostTensor x, dy, gain, bias;
  std::vector<double> mean, variance;  // of each set

  Images(DType type, const Shape& images, int64_t norm_groups)
      : dtype(type),
        shape(images),
        groups(norm_groups),
        x(HostTensor::random(type, images, 1)),
        dy(HostTensor::random(type, images, 2)),
        gain(HostTensor::random(type, {images[1]}, 3)),
        bias(HostTensor::random(type, {images[1]}, 4)),
        mean(set_count()),
        variance(set_count()) {
    for (int64_t e = 0; e < shape.elements(); ++e) mean[set_of(e)] += x.at(e) / elements_of_set();
    for (int64_t e = 0; e < shape.elements(); ++e)
      variance[set_of(e)] += std::pow(x.at(e) - mean[set_of(e)], 2) / elements_of_set();
  }
  int64_t pixels() const { return shape.elements() / (shape[0] * shape[1]); }
  int64_t channel_of(int64_t element) const { return element / pixels() % shape[1]; }
  int64_t set_of(int64_t element) const {
    if (groups == NormSets::kBatch) return channel_of(element);
    return element / (pixels() * shape[1]) * groups + channel_of(element) / (shape[1] / groups);
  }
  int64_t set_count() const { return groups == NormSets::kBatch ? shape[1] : shape[0] * groups; }
  double elements_of_set() const { return static_cast<double>(shape.elements() / set_count()); }
  double rstd(int64_t set) const { return 1 / std::sqrt(variance[set] + 1e-5f); }
  double normalized(int64_t e) const { return (x.at(e) - mean[set_of(e)]) * rstd(set_of(e)); }
  HostTensor statistic(const std::vector<double>& values) const {
    HostTensor tensor(statistics_of(dtype), {set_count()});
    for (int64_t set = 0; set < set_count(); ++set) tensor.set(set, values[set]);
    return tensor;
  }
  HostTensor rstds() const {
    std::vector<double> values;
    for (int64_t set = 0; set < set_count(); ++set) values.push_back(rstd(set));
    return statistic(values);
  }
  // Statistics are off by some rounding units; rstd amplifies that.
  double tolerance(int64_t set, double value) const {
    const double growth = std::max(1.0, rstd(set));
    return 256 * sum_unit(dtype) * growth * growth * growth + half_unit(dtype) * (std::abs(value) + 1e-3);
  }
};

std::vector<Images> cases() {
  std::vector<Images> all;
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : {Shape{2, 4, 3, 5}, Shape{3, 6, 1, 7}, Shape{2, 2, 9, 9}, Shape{2, 2, 20, 20}, Shape{5, 4}})
      for (const int64_t groups : {NormSets::kBatch, int64_t{1}, int64_t{2}}) all.emplace_back(dtype, shape, groups);
  return all;
}

TEST_P(KernelsOnEveryDevice, ChannelNormForwardMatchesTheDefinition) {
  for (const Images& c : cases()) {
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor y = HostTensor::poisoned(c.dtype, c.shape);
      HostTensor mean = HostTensor::poisoned(statistics_of(c.dtype), {c.set_count()}), rstd = mean;
      kernels.channel_norm({.x = c.x.view(),
                            .gain = c.gain.view(),
                            .bias = c.bias.view(),
                            .y = y.view(),
                            .mean = mean.view(),
                            .rstd = rstd.view(),
                            .sets = {c.groups}});
      return std::vector{y, mean, rstd};
    });
    for (int64_t e = 0; e < c.shape.elements(); ++e) {
      const double expected = c.normalized(e) * c.gain.at(c.channel_of(e)) + c.bias.at(c.channel_of(e));
      ASSERT_NEAR(out[0].at(e), expected, c.tolerance(c.set_of(e), expected)) << name_of(c.dtype) << ", element " << e;
    }
    for (int64_t set = 0; set < c.set_count(); ++set) {
      ASSERT_NEAR(out[1].at(set), c.mean[set], 64 * sum_unit(c.dtype));
      ASSERT_NEAR(out[2].at(set), c.rstd(set), std::pow(c.rstd(set), 3) * 64 * sum_unit(c.dtype));
    }
  }
}

TEST_P(KernelsOnEveryDevice, ChannelNormInputGradientMatchesTheDefinition) {
  for (const Images& c : cases()) {
    std::vector<double> of_gradients(c.set_count()), of_products(c.set_count());
    for (int64_t e = 0; e < c.shape.elements(); ++e) {
      const double g = c.dy.at(e) * c.gain.at(c.channel_of(e));
      of_gradients[c.set_of(e)] += g / c.elements_of_set();
      of_products[c.set_of(e)] += g * c.normalized(e) / c.elements_of_set();
    }
    const HostTensor mean = c.statistic(c.mean), rstd = c.rstds();
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor dx = HostTensor::poisoned(c.dtype, c.shape);
      kernels.channel_norm_backward_input({.dy = c.dy.view(),
                                           .x = c.x.view(),
                                           .gain = c.gain.view(),
                                           .mean = mean.view(),
                                           .rstd = rstd.view(),
                                           .dx = dx.view(),
                                           .sets = {c.groups}});
      return std::vector{dx};
    });
    for (int64_t e = 0; e < c.shape.elements(); ++e) {
      const int64_t set = c.set_of(e);
      const double g = c.dy.at(e) * c.gain.at(c.channel_of(e));
      const double expected = c.rstd(set) * (g - of_gradients[set] - c.normalized(e) * of_products[set]);
      ASSERT_NEAR(out[0].at(e), expected, c.tolerance(set, expected)) << name_of(c.dtype) << ", element " << e;
    }
  }
}

TEST_P(KernelsOnEveryDevice, ChannelNormGainAndBiasGradientsAddUpOrOverwrite) {
  for (const Images& c : cases())
    for (const bool accumulate : {true, false}) {
      const DType wide = statistics_of(c.dtype);
      const Shape channels{c.shape[1]};
      const HostTensor gain_before = HostTensor::random(wide, channels, 5),
                       bias_before = HostTensor::random(c.dtype, channels, 6);
      const HostTensor mean = c.statistic(c.mean), rstd = c.rstds();
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor dgain = accumulate ? gain_before : HostTensor::poisoned(wide, channels);
        HostTensor dbias = accumulate ? bias_before : HostTensor::poisoned(c.dtype, channels);
        kernels.channel_norm_backward_weight({.dy = c.dy.view(),
                                              .x = c.x.view(),
                                              .mean = mean.view(),
                                              .rstd = rstd.view(),
                                              .dgain = dgain.view(),
                                              .dbias = dbias.view(),
                                              .sets = {c.groups},
                                              .accumulate_gain = accumulate,
                                              .accumulate_bias = accumulate});
        return std::vector{dgain, dbias};
      });
      std::vector<double> gain(c.shape[1]), bias(c.shape[1]);
      for (int64_t e = 0; e < c.shape.elements(); ++e) {
        gain[c.channel_of(e)] += c.dy.at(e) * c.normalized(e);
        bias[c.channel_of(e)] += c.dy.at(e);
      }
      for (int64_t channel = 0; channel < c.shape[1]; ++channel) {
        const double expected_gain = gain[channel] + (accumulate ? gain_before.at(channel) : 0.0);
        const double expected_bias = bias[channel] + (accumulate ? bias_before.at(channel) : 0.0);
        ASSERT_NEAR(out[0].at(channel), expected_gain, 0x1p14 * sum_unit(c.dtype));
        ASSERT_NEAR(out[1].at(channel), expected_bias,
                    512 * sum_unit(c.dtype) + half_unit(c.dtype) * (std::abs(expected_bias) + 1e-3));
      }
    }
}

TEST_P(KernelsOnEveryDevice, NormalizeWithUsesTheGivenStatistics) {
  for (const DType dtype : kFloatTypes) {
    const Images c(dtype, {2, 3, 4, 5}, NormSets::kBatch);
    HostTensor mean = HostTensor::random(dtype, {3}, 7), variance = HostTensor::random(dtype, {3}, 8);
    for (int64_t channel = 0; channel < 3; ++channel) variance.set(channel, 2 + variance.at(channel));
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor y = HostTensor::poisoned(dtype, c.shape);
      kernels.normalize_with({.x = c.x.view(),
                              .gain = c.gain.view(),
                              .bias = c.bias.view(),
                              .mean = mean.view(),
                              .variance = variance.view(),
                              .y = y.view(),
                              .epsilon = 0.5f});
      return std::vector{y};
    });
    for (int64_t e = 0; e < c.shape.elements(); ++e) {
      const int64_t k = c.channel_of(e);
      const double expected = (c.x.at(e) - mean.at(k)) / std::sqrt(variance.at(k) + 0.5) * c.gain.at(k) + c.bias.at(k);
      ASSERT_NEAR(out[0].at(e), expected, 16 * sum_unit(dtype) + half_unit(dtype) * (std::abs(expected) + 1e-3));
    }
  }
}

// Mean 0.25 and a variance of 3 over 5 elements, which is 3.75 for a sample; contributions are halved.
TEST_P(KernelsOnEveryDevice, AddStatisticsAddsTheMeanAndTheVarianceOfASample) {
  Values<float> mean{0.25f}, rstd{0.5f}, mean_sum{1}, variance_sum{10};
  AddStatistics args{.mean = view_of(mean),
                     .rstd = view_of(rstd),
                     .mean_sum = view_of(mean_sum),
                     .variance_sum = view_of(variance_sum),
                     .elements = 5,
                     .epsilon = 1,
                     .scale = number(kernels(), 0.5)};
  kernels().add_statistics(args);
  EXPECT_EQ(mean_sum[0], 1.125f);
  EXPECT_EQ(variance_sum[0], 10 + 3.75f / 2);
  args.accumulate_mean = args.accumulate_variance = false;
  args.elements = 1;  // no sample of one has a variance: taken as it is
  kernels().add_statistics(args);
  EXPECT_EQ(mean_sum[0], 0.125f);
  EXPECT_EQ(variance_sum[0], 1.5f);
}

TEST_P(KernelsOnEveryDevice, AddStatisticsOfEveryTypeAreTheCpus) {
  for (const DType dtype : kFloatTypes) {
    const DType wide = statistics_of(dtype);
    const HostTensor mean = HostTensor::random(wide, {5}, 5), rstd = HostTensor::filled(wide, {5}, 0.75);
    the_cpus_bits_every_way([&](Kernels& kernels) {
      HostTensor mean_sum = HostTensor::random(dtype, {5}, 6), variance_sum = HostTensor::poisoned(wide, {5});
      kernels.add_statistics({.mean = mean.view(),
                              .rstd = rstd.view(),
                              .mean_sum = mean_sum.view(),
                              .variance_sum = variance_sum.view(),
                              .elements = 24,
                              .scale = number(kernels, 0.5),
                              .accumulate_variance = false});
      return std::vector{mean_sum, variance_sum};
    });
  }
}

TEST_P(KernelsOnEveryDevice, ChannelNormRefusesGroupsThatDoNotDivideTheChannels) {
  HostTensor x(DType::Float32, {1, 3, 2, 2}), channel(DType::Float32, {3}), statistic(DType::Float32, {2});
  EXPECT_THROW(kernels().channel_norm({.x = x.view(),
                                       .gain = channel.view(),
                                       .bias = channel.view(),
                                       .y = x.view(),
                                       .mean = statistic.view(),
                                       .rstd = statistic.view(),
                                       .sets = {2}}),
               std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::channel_norm_test
