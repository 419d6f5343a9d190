#include <cmath>
#include <functional>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::norm_test {
namespace {

struct Case {
  DType dtype;
  int64_t rows, hidden;
  bool centred, accumulate;  // centred: LayerNorm
};

// The inputs of a norm, and its statistics computed in double.
struct Problem {
  Case c;
  HostTensor x, dy, gain, bias;
  std::vector<double> mean, rstd;

  explicit Problem(const Case& chosen)
      : c(chosen),
        x(HostTensor::random(c.dtype, {c.rows, c.hidden}, 1)),
        dy(HostTensor::random(c.dtype, {c.rows, c.hidden}, 2)),
        gain(HostTensor::random(c.dtype, {c.hidden}, 3)),
        bias(HostTensor::random(c.dtype, {c.hidden}, 4)) {
    for (int64_t row = 0; row < c.rows; ++row) {
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < c.hidden; ++i) sum += x.at(row * c.hidden + i);
      mean.push_back(c.centred ? sum / static_cast<double>(c.hidden) : 0.0);
      for (int64_t i = 0; i < c.hidden; ++i) squares += std::pow(x.at(row * c.hidden + i) - mean.back(), 2);
      rstd.push_back(1 / std::sqrt(squares / static_cast<double>(c.hidden) + 1e-5f));
    }
  }
  double normalized(int64_t row, int64_t i) const { return (x.at(row * c.hidden + i) - mean[row]) * rstd[row]; }
  HostTensor statistic(const std::vector<double>& values) const {
    HostTensor tensor(statistics_of(c.dtype), {c.rows});
    for (int64_t row = 0; row < c.rows; ++row) tensor.set(row, values[row]);
    return tensor;
  }
  // Allows for H terms of magnitude <= 1 in 16 interleaved sums and a handful of roundings, all amplified by rstd, and for the
  // rounding of the output.
  double tolerance(int64_t row, double value) const {
    const double steps = static_cast<double>(c.hidden) / 16 + 16;
    const double growth = std::max(1.0, rstd[row]);
    return steps * sum_unit(c.dtype) * growth * growth * 4 + half_unit(c.dtype) * (std::abs(value) + 1e-3);
  }
};

using Sizes = std::vector<std::pair<int64_t, int64_t>>;  // rows, columns

// A GPU processes a row by a warp, by a block of 128 or 512 threads in registers, or without keeping the row. A CPU divides the
// last of these among two threads.
Sizes sizes_of_rows(DType dtype) {
  const int64_t pack = 16 / size_of(dtype);
  return {{0, 8}, {1, 1}, {3, 17}, {9, 3 * pack}, {5, 33 * pack}, {3, 130 * pack}, {2, 519 * pack}, {2, 515}, {67, 515}};
}
// Sums over rows: up to five chunks of 64, columns of one warp and of two, in packs and one by one. A CPU divides the columns
// of the last of these among two threads.
Sizes sizes_of_columns(DType dtype) {
  const int64_t pack = 16 / size_of(dtype);
  return {{0, 8}, {1, 1}, {3, 17}, {9, 3 * pack}, {2, 33 * pack}, {3, 33}, {66, pack}, {130, 9}, {257, 3}, {67, 515}};
}

std::vector<Case> all_cases(const KernelsOnEveryDevice& test, Sizes (*sizes_of)(DType) = sizes_of_rows) {
  std::vector<Case> cases;
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, hidden] : sizes_of(dtype))
      for (const bool centred : {true, false})
        for (const bool accumulate : {true, false})
          if (!test.takes_too_long(rows * hidden)) cases.push_back({dtype, rows, hidden, centred, accumulate});
  return cases;
}

HostTensor target(const Case& c, DType dtype, const Shape& shape) {
  return c.accumulate ? HostTensor::random(dtype, shape, 9) : HostTensor::poisoned(dtype, shape);
}

void expect_row_matches(const Problem& p, const HostTensor& out, const HostTensor& before, int64_t row,
                        const std::function<double(int64_t)>& expected) {
  for (int64_t i = 0; i < p.c.hidden; ++i) {
    const int64_t e = row * p.c.hidden + i;
    const double value = expected(i) + (p.c.accumulate ? before.at(e) : 0.0);
    ASSERT_NEAR(out.at(e), value, p.tolerance(row, value)) << name_of(p.c.dtype) << " row " << row << " col " << i;
  }
}

TEST_P(KernelsOnEveryDevice, NormForwardMatchesDoubleReference) {
  for (Case c : all_cases(*this)) {
    if (c.accumulate) continue;
    Problem p(c);
    const Shape rows{c.rows};
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor y = HostTensor::poisoned(c.dtype, {c.rows, c.hidden});
      HostTensor mean = HostTensor::poisoned(statistics_of(c.dtype), rows);
      HostTensor rstd = HostTensor::poisoned(statistics_of(c.dtype), rows);
      if (c.centred)
        kernels.layer_norm({p.x.view(), p.gain.view(), p.bias.view(), y.view(), mean.view(), rstd.view()});
      else
        kernels.rms_norm({p.x.view(), p.gain.view(), y.view(), rstd.view()});
      return c.centred ? std::vector{y, rstd, mean} : std::vector{y, rstd};
    });
    for (int64_t row = 0; row < c.rows; ++row) {
      expect_row_matches(p, out[0], {}, row,
                         [&](int64_t i) { return p.normalized(row, i) * p.gain.at(i) + (c.centred ? p.bias.at(i) : 0.0); });
      const double rstd = p.rstd[row];
      ASSERT_NEAR(out[1].at(row), rstd, rstd * rstd * rstd * 64 * sum_unit(c.dtype));
      if (c.centred) {
        ASSERT_NEAR(out[2].at(row), p.mean[row], 64 * sum_unit(c.dtype));
      }
    }
  }
}

// x is [B, rows of a sample, H]; y overwrites the addend, as it does in a model.
TEST_P(KernelsOnEveryDevice, NormOfASumHasTheBitsOfTheSumAndThenTheNorm) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [all_rows, hidden] : sizes_of_rows(dtype))
      for (const auto& [rate, first_element] : {std::pair<float, int64_t>{0.0f, 0}, {0.3f, 4}, {0.3f, 3}}) {
        if (takes_too_long(all_rows * hidden)) continue;
        const int64_t samples = all_rows % 3 == 0 ? 3 : 1;
        const Shape shape{samples, all_rows / samples, hidden};
        const DropoutSite site{.rate = rate, .key = 5, .step = 7, .first_sample = 2, .first_element = first_element};
        const Shape rows{shape.rows()}, matrix{shape.rows(), shape.cols()};
        const HostTensor addend = HostTensor::random(dtype, shape, 1), residual = HostTensor::random(dtype, shape, 2);
        const HostTensor gain = HostTensor::random(dtype, {shape.cols()}, 3),
                         bias = HostTensor::random(dtype, {shape.cols()}, 4);
        const auto norms = [&, shape = shape](bool fused) {
          return same_bits_every_way([&](Kernels& kernels) {
            if (HostTensor::offsets) HostTensor::offsets->seed();  // both begin at the same addresses
            HostTensor sum = HostTensor::poisoned(dtype, shape), layer = addend, rms = addend;
            HostTensor mean = HostTensor::poisoned(statistics_of(dtype), rows), rstd = mean, rms_rstd = mean;
            const ConstTensorView x = sum.view().reshaped(matrix);
            LayerNorm of_layer{.x = x,
                               .gain = gain.view(),
                               .bias = bias.view(),
                               .y = layer.view().reshaped(matrix),
                               .mean = mean.view(),
                               .rstd = rstd.view()};
            RmsNorm of_rms{.x = x, .gain = gain.view(), .y = rms.view().reshaped(matrix), .rstd = rms_rstd.view()};
            DropoutAdd add{.x = layer.view(), .residual = residual.view(), .out = sum.view(), .dropout = site};
            if (fused)
              of_layer.sum = add;
            else
              kernels.dropout_add(add);
            kernels.layer_norm(of_layer);
            add.x = rms.view();
            if (fused) {
              for (int64_t e = 0; e < sum.elements(); ++e) sum.set(e, NAN);
              of_rms.sum = add;
            }
            kernels.rms_norm(of_rms);
            return std::vector{sum, layer, mean, rstd, rms, rms_rstd};
          });
        };
        EXPECT_TRUE(norms(true) == norms(false)) << name_of(dtype) << " " << to_string(shape) << " rate " << rate;
      }
}

TEST_P(KernelsOnEveryDevice, NormOfASumRefusesAnotherX) {
  HostTensor x(DType::Float32, {2, 8}), other(DType::Float32, {2, 8}), gain(DType::Float32, {8}), row(DType::Float32, {2});
  RmsNorm args{.x = x.view(), .gain = gain.view(), .y = other.view(), .rstd = row.view()};
  for (const DropoutAdd& sum : {DropoutAdd{.x = other.view(), .residual = x.view(), .out = other.view()},
                                DropoutAdd{.x = other.view(), .out = x.view()}}) {
    args.sum = sum;
    EXPECT_THROW(kernels().rms_norm(args), std::logic_error);
  }
}

TEST_P(KernelsOnEveryDevice, NormBackwardInputMatchesDoubleReference) {
  for (Case c : all_cases(*this)) {
    Problem p(c);
    const HostTensor mean = p.statistic(p.mean), rstd = p.statistic(p.rstd);
    const HostTensor before = target(c, c.dtype, {c.rows, c.hidden});
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor dx = before;
      const ConstTensorView residual = c.accumulate ? ConstTensorView(dx.view()) : ConstTensorView{};
      if (c.centred)
        kernels.layer_norm_backward_input(
            {p.dy.view(), p.x.view(), p.gain.view(), mean.view(), rstd.view(), dx.view(), residual});
      else
        kernels.rms_norm_backward_input({p.dy.view(), p.x.view(), p.gain.view(), rstd.view(), dx.view(), residual});
      return std::vector{dx};
    });
    for (int64_t row = 0; row < c.rows; ++row) {
      double offset = 0, slope = 0;
      for (int64_t i = 0; i < c.hidden; ++i) {
        const double g = p.dy.at(row * c.hidden + i) * p.gain.at(i);
        offset += c.centred ? g / static_cast<double>(c.hidden) : 0.0;
        slope += g * p.normalized(row, i) / static_cast<double>(c.hidden);
      }
      expect_row_matches(p, out[0], before, row, [&](int64_t i) {
        const double g = p.dy.at(row * c.hidden + i) * p.gain.at(i);
        return p.rstd[row] * (g - offset - p.normalized(row, i) * slope);
      });
    }
  }
}

// Allows for a sum over T rows in chunks of 64, whose terms' magnitudes add up to `magnitude`, and for the rounding of the
// output.
double column_tolerance(const Case& c, DType out, double magnitude, double value) {
  return 80 * sum_unit(c.dtype) * (magnitude + 1) + half_unit(out) * (std::abs(value) + 1e-3);
}

// The gain and the bias have an `accumulate` flag each: here one gradient is added to what is there, the other overwrites it.
TEST_P(KernelsOnEveryDevice, NormBackwardWeightMatchesDoubleReference) {
  for (Case c : all_cases(*this, sizes_of_columns))
    for (const DType out_type : {c.dtype, c.dtype == DType::Float64 ? DType::Float64 : DType::Float32}) {
      if (takes_too_long(8 * c.rows * c.hidden)) continue;
      Problem p(c);
      Case other = c;
      other.accumulate = !c.accumulate;
      const HostTensor mean = p.statistic(p.mean), rstd = p.statistic(p.rstd);
      const HostTensor gain_before = target(c, out_type, {c.hidden}), bias_before = target(other, out_type, {c.hidden});
      const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
        HostTensor dgain = gain_before, dbias = bias_before;
        if (c.centred)
          kernels.layer_norm_backward_weight(
              {p.dy.view(), p.x.view(), mean.view(), rstd.view(), dgain.view(), dbias.view(), c.accumulate, other.accumulate});
        else {
          kernels.rms_norm_backward_weight({p.dy.view(), p.x.view(), rstd.view(), dgain.view(), c.accumulate});
          kernels.bias_gradient({p.dy.view(), dbias.view(), other.accumulate});
        }
        return std::vector{dgain, dbias};
      });
      for (int64_t i = 0; i < c.hidden; ++i) {
        double gain = c.accumulate ? gain_before.at(i) : 0.0, bias = other.accumulate ? bias_before.at(i) : 0.0;
        double gain_size = 0, bias_size = 0;
        for (int64_t row = 0; row < c.rows; ++row) {
          const double dy = p.dy.at(row * c.hidden + i), term = dy * p.normalized(row, i);
          gain += term, gain_size += std::abs(term), bias += dy, bias_size += std::abs(dy);
        }
        ASSERT_NEAR(out[0].at(i), gain, column_tolerance(c, out_type, gain_size, gain));
        ASSERT_NEAR(out[1].at(i), bias, column_tolerance(c, out_type, bias_size, bias));
      }
    }
}

// The second pass of a GPU puts chunks of 64 rows into shared memory, 256 (float64: 128) at a time, and must not overwrite them
// before they are summed.
TEST_P(KernelsOnEveryDevice, BiasGradientOfManyChunksHasTheCpusBits) {
  for (const auto& [dtype, rows] : {std::pair<DType, int64_t>{DType::Float32, 64 * 600 + 1}, {DType::Float64, 64 * 300}}) {
    const HostTensor dy = HostTensor::random(dtype, {rows, 3}, 2);
    the_cpus_bits_every_way([&, type = dtype](Kernels& kernels) {
      HostTensor dbias = HostTensor::poisoned(type, {3});
      kernels.bias_gradient({.dy = dy.view(), .dbias = dbias.view(), .accumulate = false});
      return std::vector{dbias};
    });
  }
}

TEST_P(KernelsOnEveryDevice, NormBackwardWeightLeavesAbsentGradientsOut) {
  Problem p({DType::BFloat16, 5, 12, true, false});
  const HostTensor mean = p.statistic(p.mean), rstd = p.statistic(p.rstd);
  HostTensor both_gain = HostTensor::poisoned(DType::Float32, {12}), both_bias = both_gain, gain = both_gain, bias = both_gain;
  const LayerNormBackwardWeight args{p.dy.view(),      p.x.view(),       mean.view(), rstd.view(),
                                     both_gain.view(), both_bias.view(), false,       false};
  kernels().layer_norm_backward_weight(args);
  LayerNormBackwardWeight without_bias = args, without_gain = args;
  without_bias.dgain = gain.view(), without_bias.dbias = {};
  without_gain.dbias = bias.view(), without_gain.dgain = {};
  kernels().layer_norm_backward_weight(without_bias);
  kernels().layer_norm_backward_weight(without_gain);
  EXPECT_TRUE(gain == both_gain);
  EXPECT_TRUE(bias == both_bias);
}

}  // namespace
}  // namespace trivet::kernels::norm_test
