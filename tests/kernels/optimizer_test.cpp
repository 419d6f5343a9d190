// Checks each optimizer against its formula in double, one step at a time from float32 states. Every device has the CPU's bits:
// all do the same operations in the same order and round after each.
#include <cmath>
#include <functional>

#include "kernels/verdict.h"
#include "tests/kernels/every_device.h"

namespace trivet::kernels::optimizer_test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 17, 1023, 1025, 40003};
constexpr DType kGradientTypes[] = {DType::Float32, DType::BFloat16, DType::Float16};

// All tensors before a step; each optimizer uses the ones it needs.
struct States {
  HostTensor master, first, second, gradient, copy;
  Values<double> verdict;  // empty: none

  States(int64_t size, DType gradient_type, DType copy_type)
      : master(HostTensor::random(DType::Float32, {size}, 1)),
        first(HostTensor::random(DType::Float32, {size}, 2)),
        second(HostTensor::random(DType::Float32, {size}, 3)),
        gradient(HostTensor::random(gradient_type, {size}, 4)),
        copy(HostTensor::poisoned(copy_type, {size})) {
    for (int64_t e = 0; e < size; ++e) second.set(e, std::abs(second.at(e)));
  }
  ConstTensorView told() { return verdict.empty() ? ConstTensorView{} : view_of(verdict); }
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

void expect_matches(const KernelsOnEveryDevice& test, const Step& step, const Formula& formula) {
  for (const int64_t size : kSizes)
    for (const DType gradient_type : kGradientTypes)
      for (const DType copy_type : {DType::BFloat16, DType::Float16, DType::Float32, DType::Float64}) {
        if (test.takes_too_long(size) || (size != 17 && size_of(copy_type) > 2)) continue;
        const States before(size, gradient_type, copy_type);
        const auto after = [&](const Values<double>& verdict) {
          return test.the_cpus_bits_every_way([&](Kernels& kernels) {
            States states = before;
            states.verdict = verdict;
            step(kernels, states);
            return std::vector{states.master, states.first, states.second, states.copy};
          });
        };
        const auto out = after({});
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
        if (size != 17) continue;
        after({1, 0.3, 1});  // verdict_test.cpp has its effect on values
        const auto stopped = after({1, 0.3, 0});
        EXPECT_TRUE(stopped[0] == before.master && stopped[1] == before.first && stopped[2] == before.second);
      }
}

TEST_P(KernelsOnEveryDevice, AdamWMatchesItsFormula) {
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
        *this,
        [&](Kernels& kernels, States& s) {
          adam.lr = number(kernels, 0.05), adam.beta1 = number(kernels, 0.9), adam.beta2 = number(kernels, 0.99);
          adam.gradient_scale = number(kernels, 0.5), adam.correction1 = number(kernels, bias_correction(0.9, step));
          adam.correction2 = number(kernels, bias_correction(0.99, step)), adam.verdict = s.told();
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

TEST_P(KernelsOnEveryDevice, AdamWithL2DecayAndWithoutCorrectionMatchesItsFormula) {
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
      *this,
      [&](Kernels& kernels, States& s) {
        adam.master = s.master.view(), adam.moment1 = s.first.view(), adam.moment2 = s.second.view();
        adam.gradient = s.gradient.view(), adam.copy_out = s.copy.view(), adam.verdict = s.told();
        kernels.adam(adam);
      },
      [&](Element& x) {
        const double g = x.gradient + 0.1 * x.master;
        x.first = 0.9 * x.first + 0.1 * g;
        x.second = 0.999 * x.second + 0.001 * g * g;
        x.master -= 0.05 * x.first / (std::sqrt(x.second) + 0.2);
      });
}

TEST_P(KernelsOnEveryDevice, SgdMatchesItsFormula) {
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
          *this,
          [&](Kernels& kernels, States& s) {
            sgd.master = s.master.view(), sgd.momentum_buffer = s.first.view();
            sgd.gradient = s.gradient.view(), sgd.copy_out = s.copy.view(), sgd.verdict = s.told();
            sgd.lr = number(kernels, 0.1), sgd.gradient_scale = number(kernels, 2);
            sgd.step = number(kernels, static_cast<double>(step));
            kernels.sgd(sgd);
          },
          [&](Element& x) {
            const double g = 2 * x.gradient + 0.01 * x.master;
            x.first = step == 1 ? g : 0.9 * x.first + (1 - sgd.dampening) * g;
            x.master -= 0.1 * (nesterov ? g + 0.9 * x.first : x.first);
          });
    }
}

TEST_P(KernelsOnEveryDevice, FirstSgdStepIgnoresWhatIsInTheBuffer) {
  States s(100, DType::Float32, DType::BFloat16);
  HostTensor buffer = HostTensor::poisoned(DType::Float32, {100});
  kernels().sgd({.master = s.master.view(),
                 .momentum_buffer = buffer.view(),
                 .copy_out = {},
                 .gradient = s.gradient.view(),
                 .momentum = 0.9});
  for (int64_t e = 0; e < 100; ++e) EXPECT_EQ(buffer.at(e), s.gradient.at(e));
}

TEST_P(KernelsOnEveryDevice, SgdWithoutMomentumMatchesItsFormula) {
  expect_matches(
      *this,
      [&](Kernels& kernels, States& s) {
        kernels.sgd({.master = s.master.view(),
                     .momentum_buffer = {},
                     .copy_out = s.copy.view(),
                     .gradient = s.gradient.view(),
                     .verdict = s.told(),
                     .lr = number(kernels, 0.1),
                     .weight_decay = 0.2});
      },
      [](Element& x) { x.master -= 0.1 * (x.gradient + 0.2 * x.master); });
}

TEST_P(KernelsOnEveryDevice, LionMatchesItsFormula) {
  expect_matches(
      *this,
      [&](Kernels& kernels, States& s) {
        kernels.lion({.master = s.master.view(),
                      .moment = s.first.view(),
                      .copy_out = s.copy.view(),
                      .gradient = s.gradient.view(),
                      .verdict = s.told(),
                      .lr = number(kernels, 0.01),
                      .beta1 = number(kernels, 0.6),
                      .beta2 = number(kernels, 0.95),
                      .weight_decay = 0.5,
                      .gradient_scale = number(kernels, 3)});
      },
      [](Element& x) {
        const double g = 3 * x.gradient, blend = 0.6 * x.first + 0.4 * g;
        x.master -= 0.01 * ((blend > 0 ? 1 : blend < 0 ? -1 : 0) + 0.5 * x.master);
        x.first = 0.95 * x.first + 0.05 * g;
      });
}

TEST_P(KernelsOnEveryDevice, AdagradMatchesItsFormula) {
  expect_matches(
      *this,
      [&](Kernels& kernels, States& s) {
        kernels.adagrad({.master = s.master.view(),
                         .sum_of_squares = s.second.view(),
                         .copy_out = s.copy.view(),
                         .gradient = s.gradient.view(),
                         .verdict = s.told(),
                         .lr = number(kernels, 0.1),
                         .epsilon = 0.2,
                         .weight_decay = 0.3,
                         .gradient_scale = number(kernels, 0.5)});
      },
      [](Element& x) {
        const double g = 0.5 * x.gradient + 0.3 * x.master;
        x.second += g * g;
        x.master -= 0.1 * g / (std::sqrt(x.second) + 0.2);
      });
}

TEST_P(KernelsOnEveryDevice, LambUpdateMatchesItsFormula) {
  for (const int64_t size : kSizes) {
    if (takes_too_long(size)) continue;
    const States before(size, DType::BFloat16, DType::BFloat16);
    const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
      States s = before;
      HostTensor update = HostTensor::poisoned(DType::Float32, {size});
      kernels.lamb_update({.master = s.master.view(),
                           .moment1 = s.first.view(),
                           .moment2 = s.second.view(),
                           .update = update.view(),
                           .gradient = s.gradient.view(),
                           .verdict = s.told(),
                           .epsilon = 0.2,
                           .weight_decay = 0.1,
                           .gradient_scale = number(kernels, 0.5),
                           .correction1 = number(kernels, bias_correction(0.9, 2)),
                           .correction2 = number(kernels, bias_correction(0.999, 2))});
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

TEST_P(KernelsOnEveryDevice, ApplyUpdateMatchesItsFormula) {
  expect_matches(
      *this,
      [&](Kernels& kernels, States& s) {
        kernels.apply_update({.master = s.master.view(),
                              .copy_out = s.copy.view(),
                              .update = s.gradient.view(),
                              .verdict = s.told(),
                              .scale = 0.3,
                              .weight_decay = 0.01});
      },
      [](Element& x) { x.master = x.master * 0.99 - 0.3 * x.gradient; });
}

TEST_P(KernelsOnEveryDevice, ApplyUpdateScalesByTheTrustRatio) {
  for (const double weights : {4.0, 0.0, 1e6}) {
    Values<int64_t> words;
    for (const double squares : {weights, 0.5}) {
      ExactSum sum;
      sum.add(squares);
      words.insert(words.end(), sum.words().begin(), sum.words().end());
    }
    const double ratio = weights == 0 ? 1 : std::clamp(std::sqrt(weights / 0.5), 0.01, 10.0);
    expect_matches(
        *this,
        [&](Kernels& kernels, States& s) {
          kernels.apply_update({.master = s.master.view(),
                                .copy_out = s.copy.view(),
                                .update = s.gradient.view(),
                                .verdict = s.told(),
                                .lr = number(kernels, 0.01),
                                .scale = 40,
                                .weight_decay = 3,
                                .square_sums = view_of(words, {2, ExactSum::kWords}),
                                .min_ratio = 0.01,
                                .max_ratio = 10});
        },
        [&](Element& x) { x.master = x.master * (1 - 0.01 * 3) - 0.01 * 40 * ratio * x.gradient; });
  }
}

TEST_P(KernelsOnEveryDevice, RunningAverageMatchesItsFormula) {
  expect_matches(
      *this,
      [&](Kernels& kernels, States& s) {
        kernels.running_average({.master = s.master.view(),
                                 .copy_out = s.copy.view(),
                                 .gradient = s.gradient.view(),
                                 .verdict = s.told(),
                                 .momentum = 0.3,
                                 .share = 0.25,
                                 .gradient_scale = number(kernels, 0.5)});
      },
      [](Element& x) { x.master = 0.7 * x.master + 0.3 * 0.5 * 0.25 * x.gradient; });
}

TEST_P(KernelsOnEveryDevice, MomentumUpdateMatchesItsFormula) {
  for (const bool nesterov : {true, false})
    for (const DType gradient_type : kGradientTypes) {
      const States before(2051, gradient_type, DType::BFloat16);
      const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
        States s = before;
        HostTensor update = HostTensor::poisoned(DType::Float32, {2051});
        kernels.momentum_update({.momentum_buffer = s.first.view(),
                                 .out = update.view(),
                                 .gradient = s.gradient.view(),
                                 .verdict = s.told(),
                                 .momentum = 0.95,
                                 .gradient_scale = number(kernels, 0.5),
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

TEST_P(KernelsOnEveryDevice, CutsOfTheRangeOfAdamDoNotChangeBits) {
  const States before(3000, DType::BFloat16, DType::BFloat16);
  States whole = before, parts = before;
  const auto step = [&](States& s, int64_t first, int64_t count) {
    kernels().adam({.master = s.master.view().slice(first, count),
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

// There are runs of one type and mixed types, empty ranges, more ranges than one launch takes, and some whose verdict skips the
// step.
TEST_P(KernelsOnEveryDevice, AdamOfManyRangesIsThatOfEach) {
  std::vector<States> states;
  for (int64_t i = 0; i < 91; ++i) {
    states.emplace_back(i == 90 ? 9000 : i % 5 == 0 ? 0 : i * 29 % 301, kGradientTypes[i < 70 ? 1 : i % 3], DType::BFloat16);
    if (i % 7 == 3) states.back().verdict = {1, 0.3, i % 2 == 0 ? 1.0 : 0.0};
  }
  const auto updates = [](std::vector<States>& all) {
    std::vector<Adam> list;
    for (States& s : all)
      list.push_back({.master = s.master.view(),
                      .moment1 = s.first.view(),
                      .moment2 = s.second.view(),
                      .copy_out = s.copy.view(),
                      .gradient = s.gradient.view(),
                      .verdict = s.told(),
                      .weight_decay = list.size() % 2 == 0 ? 0.1 : 0.0,
                      .correction1 = bias_correction(0.9, 3),
                      .correction2 = bias_correction(0.999, 3)});
    return list;
  };
  std::vector<States> each = states;
  for (const Adam& one : updates(each)) make_cpu_kernels(1)->adam(one);
  kernels().adam(updates(states));
  for (size_t i = 0; i < states.size(); ++i) {
    const States &here = states[i], &alone = each[i];
    EXPECT_TRUE(here.master == alone.master && here.first == alone.first && here.second == alone.second) << i;
    EXPECT_TRUE(here.copy.same_values(alone.copy)) << i;
  }
}

}  // namespace
}  // namespace trivet::kernels::optimizer_test
