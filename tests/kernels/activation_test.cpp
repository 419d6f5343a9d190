#include <cmath>
#include <functional>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::activation_test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 3, 15, 16, 17, 63, 1000, 2056, 40001};

// Values over the whole interesting range: first eight special ones, some of which saturate, then random ones in [-12, 12).
HostTensor wide(DType dtype, const Shape& shape, uint64_t seed) {
  HostTensor tensor = HostTensor::random(dtype, shape, seed);
  const double special[] = {0.0, -0.0, 30.0, -30.0, 100.0, -100.0, 1e-30, -1e-6};
  for (int64_t e = 0; e < tensor.elements(); ++e) tensor.set(e, e < 8 ? special[e] : 12 * tensor.at(e));
  return tensor;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Allows for a few roundings of values of magnitude `scale`, for the error of the argument (up to 2 u |u'| x relative), and for
// the rounding of the output.
double tolerance(DType dtype, double scale, double value) {
  return 64 * sum_unit(dtype) * scale + half_unit(dtype) * std::abs(value) + (dtype == DType::Float16 ? 0x1p-25 : 1e-38);
}

TEST_P(KernelsOnEveryDevice, GeluAndItsGradientMatchDoubleReference) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
      if (takes_too_long(size)) continue;
      const HostTensor x = wide(dtype, {size}, 1), dy = HostTensor::random(dtype, {size}, 2);
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor y = HostTensor::poisoned(dtype, {size}), dx = y;
        kernels.gelu({x.view(), y.view()});
        kernels.gelu_backward({dy.view(), x.view(), dx.view()});
        return std::vector{y, dx};
      });
      for (int64_t e = 0; e < size; ++e) {
        const double y = gelu(x.at(e)), dx = dy.at(e) * gelu_slope(x.at(e)), scale = 1 + std::abs(x.at(e));
        ASSERT_NEAR(out[0].at(e), y, tolerance(dtype, scale * std::min(1.0, std::abs(x.at(e))), y)) << x.at(e);
        ASSERT_NEAR(out[1].at(e), dx, tolerance(dtype, scale, dx)) << x.at(e);
      }
    }
}

TEST_P(KernelsOnEveryDevice, ReluAndItsGradientAreExact) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
      if (takes_too_long(size)) continue;
      HostTensor x = wide(dtype, {size}, 1);
      if (size > 10) x.set(10, NAN);
      const HostTensor dy = HostTensor::random(dtype, {size}, 2);
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor y = HostTensor::poisoned(dtype, {size}), dx = dy;
        kernels.relu({x.view(), y.view()});
        kernels.relu_backward({dx.view(), x.view(), dx.view()});  // in place
        return std::vector{y, dx};
      });
      for (int64_t e = 0; e < size; ++e) {
        ASSERT_EQ(out[1].at(e), x.at(e) > 0 ? dy.at(e) : 0.0) << x.at(e);
        if (std::isnan(x.at(e)))
          ASSERT_TRUE(std::isnan(out[0].at(e)));
        else
          ASSERT_EQ(out[0].at(e), std::max(x.at(e), 0.0));
      }
    }
}

// gelu(x) = x sigmoid(2 u)
double gelu_sigmoid(double x) { return sigmoid(std::sqrt(8 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)); }

TEST_P(KernelsOnEveryDevice, GegluAndItsGradientMatchDoubleReference) {
  for (const DType dtype : kFloatTypes) {
    const int64_t rows = 7, width = 65;
    const HostTensor gate_up = wide(dtype, {rows, 2 * width}, 1), dy = HostTensor::random(dtype, {rows, width}, 2);
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor y = HostTensor::poisoned(dtype, {rows, width}), dgate_up = HostTensor::poisoned(dtype, {rows, 2 * width});
      kernels.swiglu({.gate_up = gate_up.view(), .y = y.view(), .gelu = true});
      kernels.swiglu_backward({.dy = dy.view(), .gate_up = gate_up.view(), .dgate_up = dgate_up.view(), .gelu = true});
      return std::vector{y, dgate_up};
    });
    for (int64_t e = 0; e < rows * width; ++e) {
      const int64_t gate = e / width * 2 * width + e % width, up = gate + width;
      const double g = gate_up.at(gate), u = gate_up.at(up), d = dy.at(e), scale = 8 * (1 + std::abs(g)) * (1 + std::abs(u));
      const double y = g * gelu_sigmoid(g) * u, dgate = d * u * gelu_slope(g), dup = d * g * gelu_sigmoid(g);
      ASSERT_NEAR(out[0].at(e), y, tolerance(dtype, scale, y));
      ASSERT_NEAR(out[1].at(gate), dgate, tolerance(dtype, scale, dgate));
      ASSERT_NEAR(out[1].at(up), dup, tolerance(dtype, scale, dup));
    }
  }
}

TEST_P(KernelsOnEveryDevice, SwiGluAndItsGradientMatchDoubleReference) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 17}, {2, 1032}, {70, 515}}) {
      if (takes_too_long(rows * width)) continue;
      const HostTensor gate_up = wide(dtype, {rows, 2 * width}, 1), dy = HostTensor::random(dtype, {rows, width}, 2);
      const auto out = same_bits_every_way([&, n = rows, w = width](Kernels& kernels) {
        HostTensor y = HostTensor::poisoned(dtype, {n, w}), dgate_up = HostTensor::poisoned(dtype, {n, 2 * w});
        kernels.swiglu({gate_up.view(), y.view()});
        kernels.swiglu_backward({dy.view(), gate_up.view(), dgate_up.view()});
        return std::vector{y, dgate_up};
      });
      for (int64_t e = 0; e < rows * width; ++e) {
        const int64_t gate = e / width * 2 * width + e % width, up = gate + width;
        const double g = gate_up.at(gate), u = gate_up.at(up), s = sigmoid(g), d = dy.at(e);
        const double scale = (1 + std::abs(g)) * (1 + std::abs(u)), y = g * s * u;
        const double dgate = d * u * (s + g * s * (1 - s)), dup = d * g * s;
        ASSERT_NEAR(out[0].at(e), y, tolerance(dtype, scale, y));
        ASSERT_NEAR(out[1].at(gate), dgate, tolerance(dtype, scale, dgate));
        ASSERT_NEAR(out[1].at(up), dup, tolerance(dtype, scale, dup));
      }
    }
}

// Inputs up to 100 times the cap and near 0, where tanh(x) is nearly x.
TEST_P(KernelsOnEveryDevice, SoftCapIsTheCapTimesATanh) {
  for (const DType dtype : kFloatTypes)
    for (const double cap : {0.5, 30.0}) {
      HostTensor x = wide(dtype, {3, 101}, 1);
      for (int64_t e = 0; e < 100; ++e) x.set(e, x.at(e) * 1e-3);
      const HostTensor y = same_bits_every_way([&](Kernels& kernels) {
        HostTensor result = HostTensor::poisoned(dtype, {3, 101}), in_place = x;
        kernels.soft_cap({.x = x.view(), .y = result.view(), .cap = cap});
        kernels.soft_cap({.x = in_place.view(), .y = in_place.view(), .cap = cap});
        EXPECT_EQ(result, in_place);
        return std::vector{result};
      })[0];
      for (int64_t e = 0; e < x.elements(); ++e) {
        const double expected = cap * std::tanh(x.at(e) / cap), units = 6 * sum_unit(dtype) + half_unit(dtype);
        const double tiny = dtype == DType::Float16 ? 0x1p-25 : 0;
        ASSERT_NEAR(y.at(e), expected, units * std::abs(expected) + tiny) << name_of(dtype) << " " << x.at(e);
      }
    }
}

// An element's bits do not depend on whether a vector or the remainder of a loop computed it.
TEST_P(KernelsOnEveryDevice, GeluOfSlicesAtOddOffsetsHasTheBitsOfTheWhole) {
  for (const DType dtype : kFloatTypes) {
    const int64_t size = 333, bytes = size_of(dtype);
    const HostTensor x = wide(dtype, {size}, 1), dy = HostTensor::random(dtype, {size}, 2);
    HostTensor whole = HostTensor::poisoned(dtype, {size}), parts = whole;
    kernels().gelu_backward({dy.view(), x.view(), whole.view()});
    for (int64_t first = 0, length = 1; first < size; first += length, length = length % 37 + 2) {
      const int64_t count = std::min(length, size - first);
      kernels().gelu_backward({dy.view().slice(first, count), x.view().slice(first, count), parts.view().slice(first, count)});
    }
    EXPECT_EQ(std::memcmp(whole.view().data, parts.view().data, static_cast<size_t>(size * bytes)), 0) << name_of(dtype);
  }
}

TEST_P(KernelsOnEveryDevice, GeluOfWhatIsNotANumberIsNotOneEither) {
  for (const DType dtype : kFloatTypes) {
    HostTensor x = HostTensor::filled(dtype, {40}, std::nan("")), y = HostTensor::filled(dtype, {40}, 1.0), dx = y;
    kernels().gelu({x.view(), y.view()});
    kernels().gelu_backward({x.view(), x.view(), dx.view()});
    for (int64_t e = 0; e < 40; ++e) EXPECT_TRUE(std::isnan(y.at(e)) && std::isnan(dx.at(e)));
  }
}

}  // namespace
}  // namespace trivet::kernels::activation_test
