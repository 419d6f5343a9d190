// What gpt-oss adds to attention and to experts, against its formulas in double: sinks, biases of experts, a SwiGLU with
// limits.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::gpt_oss_test {
namespace {

using Ints = std::vector<int32_t>;

TensorView ints(Ints& values, const Shape& shape) { return {values.data(), DType::Int32, shape}; }

// The unit of the last place of numbers near 1, with room for a few operations.
double room_of(DType dtype) {
  return dtype == DType::BFloat16 ? 0x1p-6 : dtype == DType::Float16 ? 0x1p-9 : dtype == DType::Float32 ? 1e-5 : 1e-12;
}

// Sinks that are far below, near and far above the other scores.
TEST_P(KernelsOnEveryDevice, AttentionSinksMatchDoubleReference) {
  const int64_t sequences = 2, tokens = 5, heads = 6, size = 37, rows = sequences * tokens;
  for (const DType dtype : kFloatTypes) {
    const HostTensor before = HostTensor::random(dtype, {sequences, tokens, heads * size}, 1);
    const HostTensor dout = HostTensor::random(dtype, {sequences, tokens, heads * size}, 2);
    const HostTensor sums = HostTensor::random(statistics_of(dtype), {sequences, heads, tokens}, 3);
    HostTensor sinks(dtype, {heads});
    for (int64_t n = 0; n < heads; ++n) sinks.set(n, n == 0 ? -90 : n == 1 ? 90 : static_cast<double>(n) / 2 - 1.5);
    const auto found = same_bits_every_way([&](Kernels& kernels) {
      HostTensor out = before, all = sums, dsinks = HostTensor::poisoned(dtype, {sequences, tokens, heads});
      kernels.attention_sinks({sinks.view(), out.view(), all.view()});
      kernels.attention_sinks_backward({dout.view(), out.view(), all.view(), sinks.view(), dsinks.view()});
      return std::vector{out, all, dsinks};
    });
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t n = 0; n < heads; ++n) {
        const int64_t place = (row / tokens * heads + n) * tokens + row % tokens;
        const double sum = sums.at(place), sink = sinks.at(n), most = std::max(sum, sink);
        const double all = most + std::log(std::exp(sum - most) + std::exp(sink - most));
        ASSERT_NEAR(found[1].at(place), all, room_of(statistics_of(dtype)) * (1 + std::abs(all))) << name_of(dtype);
        double product = 0;
        for (int64_t e = (row * heads + n) * size; e < (row * heads + n + 1) * size; ++e) {
          ASSERT_NEAR(found[0].at(e), std::exp(sum - all) * before.at(e), room_of(dtype)) << name_of(dtype);
          product += dout.at(e) * found[0].at(e);
        }
        ASSERT_NEAR(found[2].at(row * heads + n), -std::exp(sink - all) * product, room_of(dtype) * (1 + std::abs(product)))
            << name_of(dtype) << " head " << n;
      }
  }
}

// Expert 1 has no rows, and those of expert 2 are in two ranges.
TEST_P(KernelsOnEveryDevice, BiasesAreAddedToTheRowsOfTheirExperts) {
  Ints ends{1, 3, 3, 3, 4, 9, 10, 10};
  const Ints expert_of{0, 0, 0, 2, 2, 2, 2, 2, 2, 3};
  for (const DType dtype : kFloatTypes)
    for (const int64_t width : {1, 700}) {
      const HostTensor bias = HostTensor::random(dtype, {4, width}, 1), before = HostTensor::random(dtype, {10, width}, 2);
      the_cpus_bits_every_way([&](Kernels& kernels) {
        HostTensor out = before;
        kernels.add_expert_bias({bias.view(), ints(ends, {4, 2}), out.view()});
        return std::vector{out};
      });
      HostTensor out = before;
      kernels().add_expert_bias({bias.view(), ints(ends, {4, 2}), out.view()});
      for (int64_t e = 0; e < out.elements(); ++e)
        ASSERT_NEAR(out.at(e), before.at(e) + bias.at(expert_of[static_cast<size_t>(e / width)] * width + e % width),
                    room_of(dtype));
    }
}

TEST_P(KernelsOnEveryDevice, WeightsAreSpreadOverAllExpertsAndCollected) {
  const int64_t tokens = 33, experts = 7, count = 3;
  Ints chosen;
  for (int32_t token = 0; token < tokens; ++token)
    for (const int32_t e : {token % 5, 5, 6}) chosen.push_back(e);
  for (const DType dtype : kFloatTypes) {
    const DType wide = statistics_of(dtype);
    const HostTensor weights = HostTensor::random(wide, {tokens, count}, 1),
                     x = HostTensor::random(dtype, {tokens, experts}, 2);
    const HostTensor before = HostTensor::random(wide, {tokens, count}, 3);
    const auto found = same_bits_every_way([&](Kernels& kernels) {
      HostTensor all = HostTensor::poisoned(dtype, {tokens, experts}), out = before;
      kernels.spread_weights({weights.view(), ints(chosen, {tokens, count}), all.view()});
      kernels.add_chosen({x.view(), ints(chosen, {tokens, count}), out.view()});
      return std::vector{all, out};
    });
    for (int64_t e = 0; e < tokens * experts; ++e) {
      const auto first = chosen.begin() + e / experts * count, place = std::find(first, first + count, e % experts);
      const double expected = place == first + count ? 0 : weights.at(place - chosen.begin());
      ASSERT_NEAR(found[0].at(e), expected, expected == 0 ? 0 : room_of(dtype)) << name_of(dtype);
    }
    for (int64_t k = 0; k < tokens * count; ++k)
      ASSERT_NEAR(found[1].at(k), before.at(k) + x.at(k / count * experts + chosen[static_cast<size_t>(k)]), room_of(wide));
  }
}

// Values below, within and beyond the limits; the gradient there is 0.
TEST_P(KernelsOnEveryDevice, WeightedSwiGluWithLimitsMatchesDoubleReference) {
  const int64_t rows = 6, width = 133;
  const SwiGluRule rule{.limit = 3, .alpha = 1.702, .offset = 1};
  Ints order{4, 2, 0, 5, 1, 3};
  for (const DType dtype : kFloatTypes) {
    HostTensor gate_up = HostTensor::random(dtype, {rows, 2 * width}, 1);
    for (int64_t e = 0; e < gate_up.elements(); ++e) gate_up.set(e, 4 * gate_up.at(e));
    const HostTensor dy = HostTensor::random(dtype, {rows, width}, 2);
    const HostTensor weights = HostTensor::random(statistics_of(dtype), {rows, 1}, 3);
    const auto found = same_bits_every_way([&](Kernels& kernels) {
      HostTensor y = HostTensor::poisoned(dtype, {rows, width}), dgate_up = HostTensor::poisoned(dtype, {rows, 2 * width});
      HostTensor dweights = HostTensor::poisoned(weights.view().dtype, {rows, 1});
      kernels.weighted_swiglu({gate_up.view(), weights.view(), ints(order, {rows}), y.view(), rule});
      kernels.weighted_swiglu_backward({.dy = dy.view(),
                                        .gate_up = gate_up.view(),
                                        .weights = weights.view(),
                                        .order = ints(order, {rows}),
                                        .dgate_up = dgate_up.view(),
                                        .dweights = dweights.view(),
                                        .rule = rule});
      return std::vector{y, dgate_up, dweights};
    });
    int cut = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double weight = weights.at(order[static_cast<size_t>(row)]);
      double dweight = 0;
      for (int64_t col = 0; col < width; ++col) {
        const int64_t gate = 2 * row * width + col, up = gate + width;
        const double g = gate_up.at(gate), u = gate_up.at(up), d = dy.at(row * width + col);
        const double value = std::min(g, rule.limit), factor = std::clamp(u, -rule.limit, rule.limit) + rule.offset;
        const double s = 1 / (1 + std::exp(-rule.alpha * value)), room = 8 * room_of(dtype);
        ASSERT_NEAR(found[0].at(row * width + col), weight * value * s * factor, room) << name_of(dtype);
        const double dgate = g > rule.limit ? 0 : d * weight * factor * (s + rule.alpha * value * s * (1 - s));
        const double dup = std::abs(u) > rule.limit ? 0 : d * weight * value * s;
        ASSERT_NEAR(found[1].at(gate), dgate, dgate == 0 ? 0 : room) << name_of(dtype) << " " << g;
        ASSERT_NEAR(found[1].at(up), dup, dup == 0 ? 0 : room) << name_of(dtype) << " " << u;
        dweight += d * value * s * factor;
        cut += (g > rule.limit) + (std::abs(u) > rule.limit);
      }
      ASSERT_NEAR(found[2].at(order[static_cast<size_t>(row)]), dweight, 100 * room_of(statistics_of(dtype))) << name_of(dtype);
    }
    EXPECT_GT(cut, 50);
  }
}

}  // namespace
}  // namespace trivet::kernels::gpt_oss_test
