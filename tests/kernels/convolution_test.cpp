#include <cmath>
#include <functional>

#include "tests/kernels/every_device.h"
#include "tests/kernels/image_sizes.h"

namespace trivet::kernels::convolution_test {
namespace {

// Calls use(element of x, element of the weight, element of y) for every product of a convolution.
void for_each_product(const ImageCase& c, const std::function<void(int64_t, int64_t, int64_t)>& use) {
  const Shape y = c.y(c.out_channels);
  for (int64_t b = 0; b < y[0]; ++b)
    for (int64_t o = 0; o < y[1]; ++o)
      for (int64_t p = 0; p < y[2]; ++p)
        for (int64_t q = 0; q < y[3]; ++q)
          for (int64_t k = 0; k < c.x[1]; ++k)
            for (int64_t i = 0; i < c.window.rows; ++i)
              for (int64_t j = 0; j < c.window.cols; ++j) {
                const int64_t row = p * c.window.stride + i - c.window.padding,
                              col = q * c.window.stride + j - c.window.padding;
                if (row < 0 || row >= c.x[2] || col < 0 || col >= c.x[3]) continue;
                use(at(c.x, b, k, row, col), ((o * c.x[1] + k) * c.window.rows + i) * c.window.cols + j, at(y, b, o, p, q));
              }
}

struct Tensors {
  HostTensor x, weight, bias, dy;

  Tensors(const ImageCase& c, DType dtype)
      : x(HostTensor::random(dtype, c.x, 1)),
        weight(HostTensor::random(dtype, {c.out_channels, c.x[1], c.window.rows, c.window.cols}, 2)),
        bias(HostTensor::random(dtype, {c.out_channels}, 3)),
        dy(HostTensor::random(dtype, c.y(c.out_channels), 4)) {}
};

// Terms have magnitude 1 at most; `terms` of them are added in some order, and the result is rounded.
void expect_values(const HostTensor& got, const std::vector<double>& expected, DType dtype, int64_t terms) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(expected.size()));
  for (int64_t e = 0; e < got.elements(); ++e)
    ASSERT_NEAR(got.at(e), expected[e],
                static_cast<double>(terms) * sum_unit(dtype) * 4 + half_unit(dtype) * (std::abs(expected[e]) + 1))
        << name_of(dtype) << ", element " << e;
}

TEST_P(KernelsOnEveryDevice, ConvolutionIsTheSumOverTheWindow) {
  for (const DType dtype : kFloatTypes)
    for (const ImageCase& c : image_cases(*this))
      for (const bool has_bias : {true, false}) {
        const Tensors t(c, dtype);
        const Shape shape = c.y(c.out_channels);
        std::vector<double> expected(shape.elements());
        for (int64_t e = 0; e < shape.elements() && has_bias; ++e)
          expected[e] = t.bias.at(e / (shape[2] * shape[3]) % shape[1]);
        for_each_product(c, [&](int64_t x, int64_t w, int64_t y) { expected[y] += t.x.at(x) * t.weight.at(w); });
        const auto out = same_bits_every_way([&](Kernels& kernels) {
          HostTensor y = HostTensor::poisoned(dtype, shape);
          kernels.convolution({.x = t.x.view(),
                               .weight = t.weight.view(),
                               .bias = has_bias ? t.bias.view() : ConstTensorView{},
                               .y = y.view(),
                               .window = c.window});
          return std::vector{y};
        });
        expect_values(out[0], expected, dtype, c.x[1] * c.window.pixels());
      }
}

TEST_P(KernelsOnEveryDevice, ConvolutionInputGradientIsTheSumOverTheWindowsOfAPixel) {
  for (const DType dtype : kFloatTypes)
    for (const ImageCase& c : image_cases(*this)) {
      const Tensors t(c, dtype);
      std::vector<double> expected(c.x.elements());
      for_each_product(c, [&](int64_t x, int64_t w, int64_t y) { expected[x] += t.dy.at(y) * t.weight.at(w); });
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor dx = HostTensor::poisoned(dtype, c.x);
        kernels.convolution_backward_input({.dy = t.dy.view(), .weight = t.weight.view(), .dx = dx.view(), .window = c.window});
        return std::vector{dx};
      });
      expect_values(out[0], expected, dtype, c.out_channels * c.window.pixels());
    }
}

TEST_P(KernelsOnEveryDevice, ConvolutionWeightGradientsAddUpOrOverwrite) {
  for (const DType dtype : kFloatTypes)
    for (const ImageCase& c : image_cases(*this))
      for (const bool accumulate : {true, false}) {
        const Tensors t(c, dtype);
        const DType wide = statistics_of(dtype);
        const Shape weights = t.weight.view().shape, biases{c.out_channels}, y = c.y(c.out_channels);
        const HostTensor before = HostTensor::random(wide, weights, 5), bias_before = HostTensor::random(dtype, biases, 6);
        std::vector<double> dweight(weights.elements()), dbias(biases.elements());
        for (int64_t e = 0; e < weights.elements() && accumulate; ++e) dweight[e] = before.at(e);
        for (int64_t e = 0; e < biases.elements() && accumulate; ++e) dbias[e] = bias_before.at(e);
        for_each_product(c, [&](int64_t x, int64_t w, int64_t at_y) { dweight[w] += t.x.at(x) * t.dy.at(at_y); });
        for (int64_t e = 0; e < y.elements(); ++e) dbias[e / (y[2] * y[3]) % y[1]] += t.dy.at(e);
        const auto out = same_bits_every_way([&](Kernels& kernels) {
          HostTensor got = accumulate ? before : HostTensor::poisoned(wide, weights);
          HostTensor got_bias = accumulate ? bias_before : HostTensor::poisoned(dtype, biases);
          kernels.convolution_backward_weight({.dy = t.dy.view(),
                                               .x = t.x.view(),
                                               .dweight = got.view(),
                                               .dbias = got_bias.view(),
                                               .window = c.window,
                                               .accumulate_weight = accumulate,
                                               .accumulate_bias = accumulate});
          return std::vector{got, got_bias};
        });
        const int64_t terms = y[0] * y[2] * y[3] + 1;
        expect_values(out[0], dweight, dtype, terms);
        expect_values(out[1], dbias, dtype, terms);
      }
}

TEST_P(KernelsOnEveryDevice, ConvolutionComputesOneOfItsGradientsAlone) {
  const ImageCase c = image_cases(*this)[4];
  const Tensors t(c, DType::Float32);
  HostTensor both = HostTensor::poisoned(DType::Float32, t.weight.view().shape), weight = both;
  HostTensor both_bias = HostTensor::poisoned(DType::Float32, {c.out_channels}), bias = both_bias;
  ConvolutionBackwardWeight args{.dy = t.dy.view(),
                                 .x = t.x.view(),
                                 .dweight = both.view(),
                                 .dbias = both_bias.view(),
                                 .window = c.window,
                                 .accumulate_weight = false,
                                 .accumulate_bias = false};
  kernels().convolution_backward_weight(args);
  args.dweight = weight.view(), args.dbias = {};
  kernels().convolution_backward_weight(args);
  args.dweight = {}, args.dbias = bias.view();
  kernels().convolution_backward_weight(args);
  EXPECT_TRUE(weight == both);
  EXPECT_TRUE(bias == both_bias);
}

TEST_P(KernelsOnEveryDevice, ConvolutionStatesItsFlopsAndBytes) {
  const ImageCase c = image_cases(*this)[2];  // 4 x 3 filters of 3 x 3 on 2 images with 3 x 5 windows
  Tensors t(c, DType::Float32);
  HostTensor y(DType::Float32, c.y(4));
  const KernelCall call =
      Convolution{.x = t.x.view(), .weight = t.weight.view(), .bias = t.bias.view(), .y = y.view(), .window = c.window}
          .describe();
  EXPECT_EQ(call.flops, 2.0 * 4 * (3 * 9) * (2 * 3 * 5));
  EXPECT_EQ(call.bytes, 4.0 * (2 * 3 * 35 + 4 * 27 + 4 + 2 * 4 * 15));
  EXPECT_TRUE(multiplies(call));
}

TEST_P(KernelsOnEveryDevice, ConvolutionRefusesSizesThatDoNotFit) {
  HostTensor x(DType::Float32, {1, 2, 5, 5}), weight(DType::Float32, {3, 2, 3, 3}), y(DType::Float32, {1, 3, 3, 3});
  Convolution args{.x = x.view(), .weight = weight.view(), .y = y.view(), .window = {.rows = 3, .cols = 3}};
  EXPECT_NO_THROW(kernels().convolution(args));
  args.window.padding = 1;
  EXPECT_THROW(kernels().convolution(args), std::logic_error);
  args.window = {.rows = 3, .cols = 2};
  EXPECT_THROW(kernels().convolution(args), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::convolution_test
