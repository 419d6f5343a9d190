// Kernels of images compared with the CPU's: the same values up to the order of sums.
#include "tests/cuda/twins.h"

namespace trivet::kernels::images_test {
namespace {

// Sums of at most some hundred terms of magnitude 1, in another order, and a rounding of the result.
double off_by(DType dtype) { return 0x1p9 * sum_unit(dtype) + 4 * half_unit(dtype); }

struct Case {
  Shape x;
  int64_t out_channels;
  Window window;
};

std::vector<Case> cases() {
  return {{{0, 2, 3, 3}, 2, {.rows = 2, .cols = 2}},
          {{1, 1, 1, 1}, 1, {.rows = 1, .cols = 1}},
          {{2, 3, 5, 7}, 4, {.rows = 3, .cols = 3}},
          {{3, 2, 9, 6}, 3, {.rows = 4, .cols = 2, .stride = 3, .padding = 1}},
          {{5, 3, 11, 12}, 2, {.rows = 3, .cols = 5, .stride = 2, .padding = 2}}};
}

Shape output_of(const Case& c, int64_t channels) {
  return {c.x[0], channels, c.window.output_rows(c.x[2]), c.window.output_cols(c.x[3])};
}

TEST(CudaImages, ConvolutionsAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const Case& c : cases())
      for (const bool has_bias : {true, false}) {
        const Shape weights{c.out_channels, c.x[1], c.window.rows, c.window.cols}, y_shape = output_of(c, c.out_channels);
        Twin x = Twin::random(dtype, c.x, 1), weight = Twin::random(dtype, weights, 2), dy = Twin::random(dtype, y_shape, 3);
        Twin bias = has_bias ? Twin::random(dtype, {c.out_channels}, 4) : Twin();
        Twin y = Twin::poisoned(dtype, y_shape), dx = Twin::poisoned(dtype, c.x);
        run_twins<Convolution>([&](const auto& view) {
          return Convolution{view(x), view(weight), view(bias), view(y), c.window};
        });
        y.expect_near("convolution " + text(dtype), off_by(dtype), half_unit(dtype));
        run_twins<ConvolutionBackwardInput>([&](const auto& view) {
          return ConvolutionBackwardInput{view(dy), view(weight), view(dx), c.window};
        });
        dx.expect_near("convolution_backward_input " + text(dtype), off_by(dtype), half_unit(dtype));
      }
}

TEST(CudaImages, GradientsOfFiltersAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const Case& c : cases())
      for (const bool accumulate : {true, false}) {
        const DType wide = dtype == DType::Float64 ? dtype : DType::Float32;
        const Shape weights{c.out_channels, c.x[1], c.window.rows, c.window.cols};
        Twin x = Twin::random(dtype, c.x, 1), dy = Twin::random(dtype, output_of(c, c.out_channels), 3);
        Twin dweight = accumulate ? Twin::random(wide, weights, 5) : Twin::poisoned(dtype, weights);
        Twin dbias = accumulate ? Twin::random(dtype, {c.out_channels}, 6) : Twin::poisoned(wide, {c.out_channels});
        run_twins<ConvolutionBackwardWeight>([&](const auto& view) {
          return ConvolutionBackwardWeight{.dy = view(dy),
                                           .x = view(x),
                                           .dweight = view(dweight),
                                           .dbias = view(dbias),
                                           .window = c.window,
                                           .accumulate_weight = accumulate,
                                           .accumulate_bias = accumulate};
        });
        dweight.expect_near("dweight " + text(dtype), off_by(dtype), 2 * half_unit(dtype));
        dbias.expect_near("dbias " + text(dtype), off_by(dtype), 2 * half_unit(dtype));
      }
}

// Few values, so that maxima occur several times in a window.
Twin repetitive(DType dtype, const Shape& shape) {
  HostTensor values = HostTensor::random(dtype, shape, 7);
  for (int64_t e = 0; e < values.elements(); ++e) values.set(e, std::round(2 * values.at(e)));
  return Twin(values);
}

TEST(CudaImages, PoolingIsTheCpusMaximumAndNearItsAverage) {
  for (const DType dtype : kFloatTypes)
    for (const Case& c : cases())
      for (const Pooling kind : {Pooling::Max, Pooling::Average}) {
        Window window = c.window;
        window.padding = std::min({window.padding, window.rows / 2, window.cols / 2});
        const Shape y_shape{c.x[0], c.x[1], window.output_rows(c.x[2]), window.output_cols(c.x[3])};
        Twin x = repetitive(dtype, c.x), dy = Twin::random(dtype, y_shape, 2);
        Twin y = Twin::poisoned(dtype, y_shape), dx = Twin::poisoned(dtype, c.x);
        run_twins<Pool>([&](const auto& view) { return Pool{view(x), view(y), window, kind}; });
        if (kind == Pooling::Max)
          y.expect_same_bits("max_pool " + text(dtype));
        else
          y.expect_near("average_pool " + text(dtype), off_by(dtype), half_unit(dtype));
        run_twins<PoolBackward>([&](const auto& view) { return PoolBackward{view(dy), view(x), view(dx), window, kind}; });
        dx.expect_near("pool_backward " + text(dtype), off_by(dtype), half_unit(dtype));
      }
}

TEST(CudaImages, TransposedMatricesAreTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : {Shape{0, 2, 3}, Shape{1, 1, 1}, Shape{2, 3, 5}, Shape{3, 40, 33}}) {
      Twin x = Twin::random(dtype, shape, 1), y = Twin::poisoned(dtype, {shape[0], shape[2], shape[1]});
      run_twins<Transpose>([&](const auto& view) { return Transpose{view(x), view(y)}; });
      y.expect_same_bits("transpose " + text(dtype));
    }
}

// Targets with equal neighbours, with an unused place in the middle, that do not fit, that are empty and that do not count.
TEST(CudaImages, CtcIsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t steps : {1, 3, 150})
      for (const bool in_place : {true, false}) {
        Twin targets = Twin::of<int32_t>({1, 1, 2, 3, -1, 2, 0, -1, -1, -1, -1, -1, 4, -1, -1}, {5, 3});
        Twin logits = Twin::random(dtype, {5, steps, 5}, 1), apart = Twin::poisoned(dtype, {5, steps, 5});
        Twin loss = Twin::of<double>({1, 2}, {2}), correct = Twin::of<double>({3}, {1});
        Twin& dlogits = in_place ? logits : apart;
        const int64_t scratch_bytes = CtcScratch(logits.host(), targets.host()).bytes;
        Twin scratch = Twin::of<uint8_t>(std::vector<uint8_t>(scratch_bytes, 0xA5), {scratch_bytes});
        run_twins<Ctc>([&](const auto& view) {
          return Ctc{.logits = view(logits),
                     .targets = view(targets),
                     .dlogits = view(dlogits),
                     .gradient_scale = 0.5,
                     .loss = view(loss),
                     .correct = view(correct),
                     .scratch = view(scratch)};
        });
        const double near = 0x1p12 * sum_unit(dtype);  // logarithms are as large as the number of steps
        dlogits.expect_near("dlogits " + text(dtype), near + 2 * half_unit(dtype), half_unit(dtype));
        if (steps > 5) loss.expect_near("loss " + text(dtype), 0, near);
        correct.expect_same_bits("correct " + text(dtype));
      }
}

TEST(CudaImages, CtcTargetsThatAreNoClassMakeNaN) {
  const Twin targets = Twin::of<int32_t>({1, 2, 1, 5}, {2, 2});
  for (const DType dtype : kFloatTypes)
    in_every_order([&] {
      const DeviceTensor logits(HostTensor::random(dtype, {2, 4, 5}, 1)), loss(HostTensor(DType::Float64, {2})),
          correct(HostTensor(DType::Float64, {1}));
      const int64_t scratch_bytes = CtcScratch(logits.view(), targets.device()).bytes;
      const Twin scratch = Twin::of<uint8_t>(std::vector<uint8_t>(scratch_bytes, 0xA5), {scratch_bytes});
      const Ctc arguments{.logits = logits.view(),
                          .targets = targets.device(),
                          .dlogits = logits.view(),
                          .loss = loss.view(),
                          .correct = correct.view(),
                          .scratch = scratch.device()};
      const TestLaunch launch(0);
      cuda::compute(arguments, launch.launch());
      EXPECT_TRUE(std::isnan(loss.read().at(0)));
      EXPECT_EQ(loss.read().at(1), 2);
      EXPECT_FALSE(std::isnan(correct.read().at(0)));
      const HostTensor gradient = logits.read();
      for (int64_t e = 0; e < 40; ++e) EXPECT_EQ(std::isnan(gradient.at(e)), e >= 20);
    });
}

TEST(CudaImages, NormsAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : {Shape{0, 2, 3, 3}, Shape{2, 4, 3, 5}, Shape{3, 6}, Shape{2, 2, 20, 20}})
      for (const int64_t groups : {NormSets::kBatch, int64_t{1}, int64_t{2}}) {
        const NormSets sets{groups};
        const Shape channels{shape[1]}, statistics{sets.count(shape)};
        const DType wide = statistics_of(dtype);
        Twin x = Twin::random(dtype, shape, 1), dy = Twin::random(dtype, shape, 2), gain = Twin::random(dtype, channels, 3);
        Twin bias = Twin::random(dtype, channels, 4), y = Twin::poisoned(dtype, shape), dx = Twin::poisoned(dtype, shape);
        Twin mean = Twin::poisoned(wide, statistics), rstd = Twin::poisoned(wide, statistics);
        Twin dgain = Twin::random(wide, channels, 5), dbias = Twin::poisoned(dtype, channels);
        const std::string what = text(dtype) + " groups " + std::to_string(groups);
        run_twins<ChannelNorm>([&](const auto& view) {
          return ChannelNorm{view(x), view(gain), view(bias), view(y), view(mean), view(rstd), sets};
        });
        if (x.expected().elements() > 0) {
          y.expect_near("y " + what, 8 * off_by(dtype), half_unit(dtype));
          mean.expect_near("mean " + what, off_by(wide), 0);
          rstd.expect_near("rstd " + what, 0, off_by(wide));
        }
        run_twins<ChannelNormBackwardInput>([&](const auto& view) {
          return ChannelNormBackwardInput{view(dy), view(x), view(gain), view(mean), view(rstd), view(dx), sets};
        });
        dx.expect_near("dx " + what, 8 * off_by(dtype), half_unit(dtype));
        run_twins<ChannelNormBackwardWeight>([&](const auto& view) {
          return ChannelNormBackwardWeight{.dy = view(dy),
                                           .x = view(x),
                                           .mean = view(mean),
                                           .rstd = view(rstd),
                                           .dgain = view(dgain),
                                           .dbias = view(dbias),
                                           .sets = sets,
                                           .accumulate_bias = false};
        });
        dgain.expect_near("dgain " + what, 64 * off_by(wide), half_unit(wide));
        dbias.expect_near("dbias " + what, 64 * sum_unit(dtype) + half_unit(dtype), 2 * half_unit(dtype));
      }
}

TEST(CudaImages, RunningStatisticsAreNearTheCpus) {
  for (const DType dtype : kFloatTypes) {
    const DType wide = statistics_of(dtype);
    const Shape shape{2, 5, 4, 3}, channels{5};
    HostTensor positive = HostTensor::random(dtype, channels, 8);
    for (int64_t c = 0; c < 5; ++c) positive.set(c, 2 + positive.at(c));
    Twin x = Twin::random(dtype, shape, 1), gain = Twin::random(dtype, channels, 2), bias = Twin::random(dtype, channels, 3);
    Twin mean = Twin::random(dtype, channels, 4), variance = Twin(positive), y = Twin::poisoned(dtype, shape);
    run_twins<NormalizeWith>(
        [&](const auto& view) { return NormalizeWith{view(x), view(gain), view(bias), view(mean), view(variance), view(y)}; });
    y.expect_near("normalize_with " + text(dtype), off_by(dtype), half_unit(dtype));

    HostTensor inverse_roots = HostTensor::filled(wide, channels, 0.75);
    Twin of_set = Twin::random(wide, channels, 5), rstd = Twin(inverse_roots), scale = number_of(0.5);
    Twin mean_sum = Twin::random(dtype, channels, 6), variance_sum = Twin::poisoned(wide, channels);
    run_twins<AddStatistics>([&](const auto& view) {
      return AddStatistics{.mean = view(of_set),
                           .rstd = view(rstd),
                           .mean_sum = view(mean_sum),
                           .variance_sum = view(variance_sum),
                           .elements = 24,
                           .scale = number(view, scale),
                           .accumulate_variance = false};
    });
    mean_sum.expect_near("mean_sum " + text(dtype), 0, 0);
    variance_sum.expect_near("variance_sum " + text(dtype), 0, 0);
  }
}

}  // namespace
}  // namespace trivet::kernels::images_test
