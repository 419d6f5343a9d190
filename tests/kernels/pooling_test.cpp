#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/every_device.h"
#include "tests/kernels/image_sizes.h"

namespace trivet::kernels::pooling_test {
namespace {

std::vector<ImageCase> pooled_cases(const KernelsOnEveryDevice& test) {
  std::vector<ImageCase> cases = image_cases(test);
  for (ImageCase& c : cases) c.window.padding = std::min({c.window.padding, c.window.rows / 2, c.window.cols / 2});
  return cases;
}

// Calls use(element of x, element of y) for the pixels of each window that lie inside of the image, in row order.
void for_each_pixel(const ImageCase& c, const std::function<void(int64_t, int64_t)>& use) {
  const Shape y = c.y(c.x[1]);
  for (int64_t b = 0; b < y[0]; ++b)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t p = 0; p < y[2]; ++p)
        for (int64_t q = 0; q < y[3]; ++q)
          for (int64_t i = 0; i < c.window.rows; ++i)
            for (int64_t j = 0; j < c.window.cols; ++j) {
              const int64_t row = p * c.window.stride + i - c.window.padding, col = q * c.window.stride + j - c.window.padding;
              if (row >= 0 && row < c.x[2] && col >= 0 && col < c.x[3]) use(at(c.x, b, k, row, col), at(y, b, k, p, q));
            }
}

// Few values, so that the largest occurs several times in a window; with `special`, also NaN, and so many -infinities that some
// windows have nothing else.
HostTensor repetitive(DType dtype, const Shape& shape, bool special) {
  HostTensor values = HostTensor::random(dtype, shape, 1);
  for (int64_t e = 0; e < values.elements(); ++e) {
    const double value = values.at(e);
    values.set(e, std::round(2 * value) - 3);
    if (special && value < 0.7) values.set(e, -std::numeric_limits<double>::infinity());
    if (special && value < -0.8) values.set(e, std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

// Of each window, the place of its first largest pixel; NaN is the largest.
std::vector<int64_t> places_of_maxima(const ImageCase& c, const HostTensor& x) {
  std::vector<int64_t> places(c.y(c.x[1]).elements(), -1);
  for_each_pixel(c, [&](int64_t from, int64_t to) {
    const bool first = places[to] < 0;
    if (first || x.at(from) > x.at(places[to]) || (std::isnan(x.at(from)) && !std::isnan(x.at(places[to])))) places[to] = from;
  });
  return places;
}

TEST_P(KernelsOnEveryDevice, PoolMaximaAreExactAndTheirGradientsGoToTheFirstOfThem) {
  for (const DType dtype : kFloatTypes)
    for (const ImageCase& c : pooled_cases(*this))
      for (const bool special : {false, true}) {
        const Shape y = c.y(c.x[1]);
        const HostTensor x = repetitive(dtype, c.x, special), dy = HostTensor::random(dtype, y, 2);
        const std::vector<int64_t> places = places_of_maxima(c, x);
        HostTensor maxima(dtype, y);
        std::vector<double> gradients(c.x.elements());
        for (int64_t e = 0; e < y.elements(); ++e) {
          maxima.set(e, x.at(places[e]));
          gradients[places[e]] += dy.at(e);
        }
        const auto out = same_bits_every_way([&](Kernels& kernels) {
          HostTensor largest(dtype, y), dx = HostTensor::poisoned(dtype, c.x);
          kernels.pool({.x = x.view(), .y = largest.view(), .window = c.window, .kind = Pooling::Max});
          kernels.pool_backward({.dy = dy.view(), .x = x.view(), .dx = dx.view(), .window = c.window, .kind = Pooling::Max});
          return std::vector{largest, dx};
        });
        ASSERT_TRUE(out[0] == maxima);
        for (int64_t e = 0; e < c.x.elements(); ++e)
          ASSERT_NEAR(out[1].at(e), gradients[e], 64 * sum_unit(dtype) + half_unit(dtype) * std::abs(gradients[e]));
      }
}

// Addition in float depends on the order, which only the CPU promises.
TEST_P(KernelsOnEveryDevice, PoolGradientsAreAddedInTheOrderOfTheWindows) {
  if (!on_cpu()) return;
  for (const ImageCase& c : pooled_cases(*this)) {
    const Shape y = c.y(c.x[1]);
    const HostTensor x = repetitive(DType::Float32, c.x, false), dy = HostTensor::random(DType::Float32, y, 2);
    const std::vector<int64_t> places = places_of_maxima(c, x);
    std::vector<float> of_maxima(c.x.elements()), of_averages(c.x.elements());
    for (int64_t e = 0; e < y.elements(); ++e) of_maxima[places[e]] += static_cast<float>(dy.at(e));
    for_each_pixel(c, [&](int64_t from, int64_t to) {
      of_averages[from] += static_cast<float>(dy.at(to)) / static_cast<float>(c.window.pixels());
    });
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor max = HostTensor::poisoned(DType::Float32, c.x), average = max;
      kernels.pool_backward({.dy = dy.view(), .x = x.view(), .dx = max.view(), .window = c.window, .kind = Pooling::Max});
      kernels.pool_backward({.dy = dy.view(), .dx = average.view(), .window = c.window, .kind = Pooling::Average});
      return std::vector{max, average};
    });
    for (int64_t e = 0; e < c.x.elements(); ++e) {
      ASSERT_EQ(out[0].at(e), of_maxima[e]);
      ASSERT_EQ(out[1].at(e), of_averages[e]);
    }
  }
}

TEST_P(KernelsOnEveryDevice, PoolAveragesCountPixelsOutsideAsZero) {
  for (const DType dtype : kFloatTypes)
    for (const ImageCase& c : pooled_cases(*this)) {
      const Shape y = c.y(c.x[1]);
      const HostTensor x = HostTensor::random(dtype, c.x, 1), dy = HostTensor::random(dtype, y, 2);
      const auto pixels = static_cast<double>(c.window.pixels());
      std::vector<double> averages(y.elements()), gradients(c.x.elements());
      for_each_pixel(c, [&](int64_t from, int64_t to) {
        averages[to] += x.at(from) / pixels;
        gradients[from] += dy.at(to) / pixels;
      });
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor average = HostTensor::poisoned(dtype, y), dx = HostTensor::poisoned(dtype, c.x);
        kernels.pool({.x = x.view(), .y = average.view(), .window = c.window, .kind = Pooling::Average});
        kernels.pool_backward({.dy = dy.view(), .dx = dx.view(), .window = c.window, .kind = Pooling::Average});
        return std::vector{average, dx};
      });
      for (int64_t e = 0; e < y.elements(); ++e)
        ASSERT_NEAR(out[0].at(e), averages[e], 64 * sum_unit(dtype) + half_unit(dtype) * std::abs(averages[e]));
      for (int64_t e = 0; e < c.x.elements(); ++e)
        ASSERT_NEAR(out[1].at(e), gradients[e], 64 * sum_unit(dtype) + half_unit(dtype) * std::abs(gradients[e]));
    }
}

TEST_P(KernelsOnEveryDevice, PoolRefusesAPaddingOfMoreThanHalfOfTheWindow) {
  HostTensor x(DType::Float32, {1, 1, 4, 4}), y(DType::Float32, {1, 1, 6, 6});
  EXPECT_THROW(kernels().pool({.x = x.view(), .y = y.view(), .window = {.rows = 3, .cols = 3, .padding = 2}}),
               std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::pooling_test
