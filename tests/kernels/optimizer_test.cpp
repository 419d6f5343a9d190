// Checks each optimizer against its formula in double, one step at a time from float32 states.
#include <cmath>
#include <functional>

#include "tests/kernels/every_way.h"

namespace trivet::kernels::optimizer_test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 17, 1023, 1025, 40003};
constexpr DType kGradientTypes[] = {DType::Float32, DType::BFloat16, DType::Float16};

// All tensors before a step; each optimizer uses the ones it needs.
struct States {
  HostTensor master, first, second, gradient, copy;

  States(int64_t size, DType gradient_type, DType copy_type)
      : master(HostTensor::random(DType::Float32, {size}, 1)),
        first(HostTensor::random(DType::Float32, {size}, 2)),
        second(HostTensor::random(DType::Float32, {size}, 3)),
        gradient(HostTensor::random(gradient_type, {size}, 4)),
        copy(HostTensor::poisoned(copy_type, {size})) {
    for (int64_t e = 0; e < size; ++e) second.set(e, std::abs(second.at(e)));
  }
};

// The values of one element.
struct Element {
  double master, first, second, gradient;
};

using Step = std::function<void(Kernels&, States&)>;
using Formula = std::function<void(Element&)>;

// Allows for a dozen roundings of numbers near 1 and of `size`: Adam's quotient may be large where the second moment is small.
void expect_near(double value, double expected, double size) {
  ASSERT_NEAR(value, expected, 16 * 0x1p-24 * (std::abs(expected) + size));
}

void expect_matches(const Step& step, const Formula& formula) {
  for (const int64_t size : kSizes)
    for (const DType gradient_type : kGradientTypes)
      for (const DType copy_type : {DType::BFloat16, DType::Float16}) {
        const States before(size, gradient_type, copy_type);
        const auto out = same_bits_every_way([&](Kernels& kernels) {
          States states = before;
          step(kernels, states);
          return std::vector{states.master, states.first, states.second, states.copy};
        });
        HostTensor rounded = HostTensor::poisoned(copy_type, {size});
        for (int64_t e = 0; e < size; ++e) {
          Element x{before.master.at(e), before.first.at(e), before.second.at(e), before.gradient.at(e)};
          formula(x);
          expect_near(out[0].at(e), x.master, 1 + std::abs(x.master - before.master.at(e)));
          expect_near(out[1].at(e), x.first, 1);
          expect_near(out[2].at(e), x.second, 1);
          rounded.set(e, out[0].at(e));
        }
        EXPECT_TRUE(out[3] == rounded) << "copy_out is not the rounded master";
      }
}

TEST(Optimizer, AdamWMatchesItsFormula) {
  for (const int64_t step : {1, 7, 100000}) {
    Adam adam{.master = {},
              .moment1 = {},
              .moment2 = {},
              .copy_out = {},
              .gradient = {},
              .lr = 0.05,
              .beta1 = 0.9,
              .beta2 = 0.99,
              .epsilon = 0.2,
              .weight_decay = 0.1,
              .gradient_scale = 0.5,
              .correction1 = bias_correction(0.9, step),
              .correction2 = bias_correction(0.99, step)};
    expect_matches(
        [&](Kernels& kernels, States& s) {
          adam.master = s.master.view(), adam.moment1 = s.first.view(), adam.moment2 = s.second.view();
          adam.gradient = s.gradient.view(), adam.copy_out = s.copy.view();
          kernels.adam(adam);
        },
        [&](Element& x) {
          const double g = 0.5 * x.gradient, t = static_cast<double>(step);
          x.first = 0.9 * x.first + 0.1 * g;
          x.second = 0.99 * x.second + 0.01 * g * g;
          const double m = x.first / (1 - std::pow(0.9, t)), v = x.second / (1 - std::pow(0.99, t));
          x.master = x.master * (1 - 0.05 * 0.1) - 0.05 * m / (std::sqrt(v) + 0.2);
        });
  }
}

TEST(Optimizer, AdamWithL2DecayAndWithoutCorrectionMatchesItsFormula) {
  Adam adam{.master = {},
            .moment1 = {},
            .moment2 = {},
            .copy_out = {},
            .gradient = {},
            .lr = 0.05,
            .epsilon = 0.2,
            .weight_decay = 0.1,
            .decoupled_decay = false};
  expect_matches(
      [&](Kernels& kernels, States& s) {
        adam.master = s.master.view(), adam.moment1 = s.first.view(), adam.moment2 = s.second.view();
        adam.gradient = s.gradient.view(), adam.copy_out = s.copy.view();
        kernels.adam(adam);
      },
      [&](Element& x) {
        const double g = x.gradient + 0.1 * x.master;
        x.first = 0.9 * x.first + 0.1 * g;
        x.second = 0.999 * x.second + 0.001 * g * g;
        x.master -= 0.05 * x.first / (std::sqrt(x.second) + 0.2);
      });
}

TEST(Optimizer, SgdMatchesItsFormula) {
  for (const bool nesterov : {false, true})
    for (const int64_t step : {1, 2}) {
      Sgd sgd{.master = {},
              .momentum_buffer = {},
              .copy_out = {},
              .gradient = {},
              .lr = 0.1,
              .momentum = 0.9,
              .dampening = nesterov ? 0.0 : 0.3,
              .weight_decay = 0.01,
              .gradient_scale = 2,
              .step = static_cast<double>(step),
              .nesterov = nesterov};
      expect_matches(
          [&](Kernels& kernels, States& s) {
            sgd.master = s.master.view(), sgd.momentum_buffer = s.first.view();
            sgd.gradient = s.gradient.view(), sgd.copy_out = s.copy.view();
            kernels.sgd(sgd);
          },
          [&](Element& x) {
            const double g = 2 * x.gradient + 0.01 * x.master;
            x.first = step == 1 ? g : 0.9 * x.first + (1 - sgd.dampening) * g;
            x.master -= 0.1 * (nesterov ? g + 0.9 * x.first : x.first);
          });
    }
}

TEST(Optimizer, FirstSgdStepIgnoresWhatIsInTheBuffer) {
  States s(100, DType::Float32, DType::BFloat16);
  HostTensor buffer = HostTensor::poisoned(DType::Float32, {100});
  make_cpu_kernels(1)->sgd({.master = s.master.view(),
                            .momentum_buffer = buffer.view(),
                            .copy_out = {},
                            .gradient = s.gradient.view(),
                            .momentum = 0.9});
  for (int64_t e = 0; e < 100; ++e) EXPECT_EQ(buffer.at(e), s.gradient.at(e));
}

TEST(Optimizer, SgdWithoutMomentumMatchesItsFormula) {
  expect_matches(
      [](Kernels& kernels, States& s) {
        kernels.sgd({.master = s.master.view(),
                     .momentum_buffer = {},
                     .copy_out = s.copy.view(),
                     .gradient = s.gradient.view(),
                     .lr = 0.1,
                     .weight_decay = 0.2});
      },
      [](Element& x) { x.master -= 0.1 * (x.gradient + 0.2 * x.master); });
}

TEST(Optimizer, LionMatchesItsFormula) {
  expect_matches(
      [](Kernels& kernels, States& s) {
        kernels.lion({.master = s.master.view(),
                      .moment = s.first.view(),
                      .copy_out = s.copy.view(),
                      .gradient = s.gradient.view(),
                      .lr = 0.01,
                      .beta1 = 0.6,
                      .beta2 = 0.95,
                      .weight_decay = 0.5,
                      .gradient_scale = 3});
      },
      [](Element& x) {
        const double g = 3 * x.gradient, blend = 0.6 * x.first + 0.4 * g;
        x.master -= 0.01 * ((blend > 0 ? 1 : blend < 0 ? -1 : 0) + 0.5 * x.master);
        x.first = 0.95 * x.first + 0.05 * g;
      });
}

TEST(Optimizer, AdagradMatchesItsFormula) {
  expect_matches(
      [](Kernels& kernels, States& s) {
        kernels.adagrad({.master = s.master.view(),
                         .sum_of_squares = s.second.view(),
                         .copy_out = s.copy.view(),
                         .gradient = s.gradient.view(),
                         .lr = 0.1,
                         .epsilon = 0.2,
                         .weight_decay = 0.3,
                         .gradient_scale = 0.5});
      },
      [](Element& x) {
        const double g = 0.5 * x.gradient + 0.3 * x.master;
        x.second += g * g;
        x.master -= 0.1 * g / (std::sqrt(x.second) + 0.2);
      });
}

TEST(Optimizer, LambUpdateMatchesItsFormula) {
  for (const int64_t size : kSizes) {
    const States before(size, DType::BFloat16, DType::BFloat16);
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      States s = before;
      HostTensor update = HostTensor::poisoned(DType::Float32, {size});
      kernels.lamb_update({.master = s.master.view(),
                           .moment1 = s.first.view(),
                           .moment2 = s.second.view(),
                           .update = update.view(),
                           .gradient = s.gradient.view(),
                           .epsilon = 0.2,
                           .weight_decay = 0.1,
                           .gradient_scale = 0.5,
                           .correction1 = bias_correction(0.9, 2),
                           .correction2 = bias_correction(0.999, 2)});
      return std::vector{s.first, s.second, update};
    });
    for (int64_t e = 0; e < size; ++e) {
      const double g = 0.5 * before.gradient.at(e), m = 0.9 * before.first.at(e) + 0.1 * g;
      const double v = 0.999 * before.second.at(e) + 0.001 * g * g, m_hat = m / (1 - 0.81), v_hat = v / (1 - 0.999 * 0.999);
      expect_near(out[0].at(e), m, 1);
      expect_near(out[1].at(e), v, 1);
      const double quotient = m_hat / (std::sqrt(v_hat) + 0.2);
      ASSERT_NEAR(out[2].at(e), quotient + 0.1 * before.master.at(e), 2e-6 * (1 + std::abs(quotient) + 1 / std::sqrt(v_hat)));
    }
  }
}

TEST(Optimizer, ApplyUpdateMatchesItsFormula) {
  expect_matches(
      [](Kernels& kernels, States& s) {
        kernels.apply_update({.master = s.master.view(),
                              .copy_out = s.copy.view(),
                              .update = s.gradient.view(),
                              .scale = 0.3,
                              .weight_decay = 0.01});
      },
      [](Element& x) { x.master = x.master * 0.99 - 0.3 * x.gradient; });
}

TEST(Optimizer, RunningAverageMatchesItsFormula) {
  expect_matches(
      [](Kernels& kernels, States& s) {
        kernels.running_average({.master = s.master.view(),
                                 .copy_out = s.copy.view(),
                                 .gradient = s.gradient.view(),
                                 .momentum = 0.3,
                                 .share = 0.25,
                                 .gradient_scale = 0.5});
      },
      [](Element& x) { x.master = 0.7 * x.master + 0.3 * 0.5 * 0.25 * x.gradient; });
}

TEST(Optimizer, MomentumUpdateMatchesItsFormula) {
  for (const bool nesterov : {true, false})
    for (const DType gradient_type : kGradientTypes) {
      const States before(2051, gradient_type, DType::BFloat16);
      const auto out = same_bits_every_way([&](Kernels& kernels) {
        States s = before;
        HostTensor update = HostTensor::poisoned(DType::Float32, {2051});
        kernels.momentum_update({.momentum_buffer = s.first.view(),
                                 .out = update.view(),
                                 .gradient = s.gradient.view(),
                                 .momentum = 0.95,
                                 .gradient_scale = 0.5,
                                 .nesterov = nesterov});
        return std::vector{s.first, update};
      });
      for (int64_t e = 0; e < 2051; ++e) {
        const double g = 0.5 * before.gradient.at(e), buffer = 0.95 * before.first.at(e) + g;
        expect_near(out[0].at(e), buffer, 1);
        expect_near(out[1].at(e), nesterov ? g + 0.95 * buffer : buffer, 1);
      }
    }
}

TEST(Optimizer, CutsOfTheRangeDoNotChangeBits) {
  const States before(3000, DType::BFloat16, DType::BFloat16);
  States whole = before, parts = before;
  const auto kernels = make_cpu_kernels(1);
  const auto step = [&](States& s, int64_t first, int64_t count) {
    kernels->adam({.master = s.master.view().slice(first, count),
                   .moment1 = s.first.view().slice(first, count),
                   .moment2 = s.second.view().slice(first, count),
                   .copy_out = s.copy.view().slice(first, count),
                   .gradient = s.gradient.view().slice(first, count)});
  };
  step(whole, 0, 3000);
  for (int64_t first = 0, length = 1; first < 3000; first += length, length = length * 5 % 613 + 1)
    step(parts, first, std::min(length, 3000 - first));
  EXPECT_TRUE(whole.master == parts.master && whole.first == parts.first && whole.second == parts.second);
  EXPECT_TRUE(whole.copy == parts.copy);
}

}  // namespace
}  // namespace trivet::kernels::optimizer_test
