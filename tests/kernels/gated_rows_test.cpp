// The gate of a shared expert against its formula in double, and the biases that balance experts against worked examples.
#include <cmath>
#include <tuple>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::gated_rows_test {
namespace {

double gate_of(double logit) { return 1 / (1 + std::exp(-logit)); }

// The unit of the last place of numbers near 1, with room for a few operations.
double tolerance_of(DType dtype) {
  return dtype == DType::BFloat16 ? 0x1p-6 : dtype == DType::Float16 ? 0x1p-9 : dtype == DType::Float32 ? 1e-5 : 1e-12;
}

TEST_P(KernelsOnEveryDevice, GatesAndTheirGradientsMatchDoubleReference) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {5, 64}, {37, 33}, {3, 1000}}) {
      if (takes_too_long(rows * width)) continue;
      const HostTensor x = HostTensor::random(dtype, {rows, width}, 1), dy = HostTensor::random(dtype, {rows, width}, 2);
      const HostTensor before = HostTensor::random(dtype, {rows, width}, 3);
      HostTensor logits = HostTensor::random(statistics_of(dtype), {rows, 1}, 4);
      for (int64_t row = 0; row < rows; ++row) logits.set(row, row == 2 ? -6 : 4 * logits.at(row));
      const auto found = same_bits_every_way([&, r = rows, w = width](Kernels& kernels) {
        HostTensor y = before, dx = HostTensor::poisoned(dtype, {r, w}), dlogits = HostTensor::poisoned(dtype, {r, 1});
        kernels.add_gated({x.view(), logits.view(), y.view()});
        kernels.add_gated_backward({dy.view(), x.view(), logits.view(), dx.view(), dlogits.view()});
        return std::vector{y, dx, dlogits};
      });
      for (int64_t row = 0; row < rows; ++row) {
        const double gate = gate_of(logits.at(row)), slope = gate * gate_of(-logits.at(row));
        double product = 0;
        for (int64_t e = row * width; e < (row + 1) * width; ++e) {
          product += dy.at(e) * x.at(e);
          ASSERT_NEAR(found[0].at(e), before.at(e) + gate * x.at(e), tolerance_of(dtype)) << name_of(dtype);
          ASSERT_NEAR(found[1].at(e), gate * dy.at(e), tolerance_of(dtype)) << name_of(dtype);
        }
        const double scale = slope * std::sqrt(static_cast<double>(width)) + 1e-30;
        ASSERT_NEAR(found[2].at(row) / scale, slope * product / scale, tolerance_of(dtype)) << name_of(dtype) << " row " << row;
      }
    }
}

// A row does not depend on the others: tensor, context and data ranks have other ones.
TEST_P(KernelsOnEveryDevice, AGatedRowHasTheSameBitsAmongOthers) {
  const int64_t rows = 9, width = 40;
  const HostTensor x = HostTensor::random(DType::Float32, {rows, width}, 1),
                   dy = HostTensor::random(DType::Float32, {rows, width}, 2);
  const HostTensor logits = HostTensor::random(DType::Float32, {rows, 1}, 4);
  const auto computed = [&](int64_t first, int64_t count) {
    HostTensor y = HostTensor::filled(DType::Float32, {count, width}, 1),
               dx = HostTensor::poisoned(DType::Float32, {count, width}),
               dlogits = HostTensor::poisoned(DType::Float32, {count, 1});
    const auto part = [&](const HostTensor& whole) { return whole.view().row_range(first, count); };
    kernels().add_gated({part(x), part(logits), y.view()});
    kernels().add_gated_backward({part(dy), part(x), part(logits), dx.view(), dlogits.view()});
    return std::tuple(y, dx, dlogits);
  };
  const auto [all_y, all_dx, all_dlogits] = computed(0, rows);
  for (int64_t row = 0; row < rows; ++row) {
    const auto [y, dx, dlogits] = computed(row, 1);
    for (int64_t col = 0; col < width; ++col) {
      EXPECT_EQ(y.at(col), all_y.at(row * width + col));
      EXPECT_EQ(dx.at(col), all_dx.at(row * width + col));
    }
    EXPECT_EQ(dlogits.at(0), all_dlogits.at(row));
  }
}

struct Balance {
  std::vector<float> bias;
  std::vector<int64_t> counts;
  double rate = 0.001;
  int64_t first = 0;
  std::vector<double> verdict = {};
};

std::vector<double> balanced(Kernels& kernels, const Balance& balance) {
  HostTensor bias(DType::Float32, {static_cast<int64_t>(balance.bias.size())});
  for (int64_t i = 0; i < bias.elements(); ++i) bias.set(i, static_cast<double>(balance.bias[static_cast<size_t>(i)]));
  Values<int64_t> counts(balance.counts.begin(), balance.counts.end());
  Values<double> verdict(balance.verdict.begin(), balance.verdict.end());
  kernels.balance_experts({.bias = bias.view(),
                           .counts = view_of(counts),
                           .verdict = verdict.empty() ? ConstTensorView{} : ConstTensorView(view_of(verdict)),
                           .first = balance.first,
                           .rate = balance.rate});
  std::vector<double> found;
  for (int64_t i = 0; i < bias.elements(); ++i) found.push_back(bias.at(i));
  return found;
}

TEST_P(KernelsOnEveryDevice, BiasesOfExpertsGoUpWithFewTokensAndDownWithMany) {
  const auto up = static_cast<double>(0.001F);
  EXPECT_EQ(balanced(kernels(), {{0, 0, 0, 0}, {5, 3, 0, 4}}), (std::vector<double>{-up, 0, up, -up}));
  EXPECT_EQ(balanced(kernels(), {{0, 0}, {5, 3, 0, 4}, 0.001, 2}), (std::vector<double>{up, -up})) << "a shard";
  // The mean is 10210 1/3: as floats of 8 bits, whose neighbours are 64 apart, all counts would be alike.
  EXPECT_EQ(balanced(kernels(), {{1, 1, 1}, {10210, 10211, 10210}, 0.25}), (std::vector<double>{1.25, 0.75, 1.25}));
  // Beyond 2^53, where doubles no longer hold each integer.
  const int64_t many = int64_t{1} << 54;
  EXPECT_EQ(balanced(kernels(), {{0, 0, 0}, {many, many + 1, many - 1}, 0.5}), (std::vector<double>{0, -0.5, 0.5}));
  EXPECT_EQ(balanced(kernels(), {{3, 4}, {0, 0}, 1}), (std::vector<double>{3, 4})) << "no tokens";
}

TEST_P(KernelsOnEveryDevice, BiasesOfExpertsStayInAStepThatIsSkipped) {
  EXPECT_EQ(balanced(kernels(), {{0, 0}, {1, 0}, 1, 0, {0, 0.01, 1}}), (std::vector<double>{-1, 1}));
  EXPECT_EQ(balanced(kernels(), {{0, 0}, {1, 0}, 1, 0, {0, 0.01, 0}}), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace trivet::kernels::gated_rows_test
