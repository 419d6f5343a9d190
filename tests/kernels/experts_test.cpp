// The choice of experts against its definition in double and its gradient against finite differences; the order of the experts'
// rows against a stable sort; and the activation, whose weights' gradients do not depend on how many ranks share F.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::experts_test {
namespace {

using Ints = Values<int32_t>;
using Ranges = std::vector<ProductCuts::Range>;

HostTensor tensor_of(DType dtype, const Shape& shape, const std::vector<double>& values) {
  HostTensor tensor(dtype, shape);
  for (int64_t e = 0; e < tensor.elements(); ++e) tensor.set(e, values[e]);
  return tensor;
}

struct Choice {
  Ints chosen;  // [T, K]
  HostTensor weights;
};
Choice choose(Kernels& kernels, const HostTensor& logits, int64_t count, const ExpertRule& rule, const HostTensor* bias = {}) {
  const Shape shape{logits.view().shape[0], count};
  Choice choice{Ints(shape.elements(), -1), HostTensor::poisoned(logits.view().dtype, shape)};
  kernels.choose_experts({.logits = logits.view(),
                          .bias = bias ? bias->view() : ConstTensorView{},
                          .chosen = view_of(choice.chosen, shape),
                          .weights = choice.weights.view(),
                          .rule = rule});
  return choice;
}

constexpr ExpertRule kMixtral{}, kSwitch{.normalize = false}, kSigmoid{.score = ExpertScore::Sigmoid, .scale = 2.5},
    kPlainSigmoid{.score = ExpertScore::Sigmoid, .normalize = false}, kGroups{.groups = 4, .groups_per_token = 2},
    kDeepSeek{.score = ExpertScore::Sigmoid, .scale = 2.5, .groups = 4, .groups_per_token = 2},
    kOneEach{.score = ExpertScore::Sigmoid, .groups = 8, .groups_per_token = 5};
constexpr ExpertRule kRules[] = {kMixtral, kSwitch, kSigmoid, kPlainSigmoid, kGroups, kDeepSeek, kOneEach};

TEST_P(KernelsOnEveryDevice, ChooseExpertsFollowsTheRulesOfKnownModels) {
  const std::vector<double> logits{2, 1, 0.5, -1}, bias{0, -0.3, 0.2, 0.1};
  ExpertRule two_groups = kSigmoid;
  two_groups.groups = 2;
  const std::tuple<const char*, ExpertRule, bool, Ints, std::vector<double>> examples[] = {
      {"Mixtral", kMixtral, false, {0, 1}, {0.731059, 0.268941}},
      {"Qwen3 without normalization", kSwitch, false, {0, 1}, {0.609460, 0.224208}},
      {"DeepSeek-V3 without groups", kSigmoid, true, {0, 2}, {1.464815, 1.035185}},
      {"DeepSeek-V3", two_groups, true, {0, 1}, {1.366123, 1.133877}}};
  for (const DType dtype : {DType::Float32, DType::Float64})
    for (const auto& [name, rule, is_biased, chosen, weights] : examples) {
      const HostTensor addends = tensor_of(dtype, {4}, bias);
      const Choice choice = choose(kernels(), tensor_of(dtype, {1, 4}, logits), 2, rule, is_biased ? &addends : nullptr);
      EXPECT_EQ(choice.chosen, chosen) << name;
      for (int64_t k = 0; k < 2; ++k) EXPECT_NEAR(choice.weights.at(k), weights[k], 1e-6) << name;
    }
}

TEST_P(KernelsOnEveryDevice, ChooseExpertsTakesLowerOnesOfEqualsAndNaNLast) {
  const std::tuple<std::vector<double>, int64_t, int64_t, Ints> examples[] = {
      {{1, 3, 3, 3}, 1, 2, {1, 2}},  {{3, 1, 3, 1}, 1, 3, {0, 1, 2}},    {{7, 7, 7, 7}, 2, 2, {0, 1}},
      {{2, 4, 4, 2}, 2, 1, {1}},     {{NAN, -50, 1, NAN}, 1, 2, {1, 2}}, {{-90, NAN, 1, NAN}, 1, 3, {0, 1, 2}},
      {{NAN, 5, 1, 2}, 2, 2, {2, 3}}};
  for (const DType dtype : {DType::Float32, DType::Float64})
    for (const ExpertScore score : {ExpertScore::Softmax, ExpertScore::Sigmoid})
      for (const auto& [logits, groups, count, chosen] : examples) {
        const Choice choice = choose(kernels(), tensor_of(dtype, {1, 4}, logits), count, {.score = score, .groups = groups});
        EXPECT_EQ(choice.chosen, chosen) << name_of(score) << " " << testing::PrintToString(logits);
        const bool has_nan = std::ranges::any_of(chosen, [&z = logits](int32_t e) { return std::isnan(z[e]); });
        double sum = 0;
        for (int64_t k = 0; k < count; ++k) sum += choice.weights.at(k);
        if (has_nan)
          EXPECT_TRUE(std::isnan(sum));
        else
          EXPECT_NEAR(sum, 1, 1e-6);
      }
}

// Scores, and the sum that the losses divide by.
std::vector<double> scores_of(ExpertScore score, const std::vector<double>& logits) {
  std::vector<double> scores;
  for (const double z : logits) scores.push_back(score == ExpertScore::Sigmoid ? 1 / (1 + std::exp(-z)) : std::exp(z));
  const double sum = score == ExpertScore::Sigmoid ? 1 : std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& p : scores) p /= sum;
  return scores;
}
std::vector<double> row_of(const HostTensor& matrix, int64_t row) {
  std::vector<double> values;
  for (int64_t col = 0; col < matrix.view().shape[1]; ++col) values.push_back(matrix.at(row * matrix.view().shape[1] + col));
  return values;
}
std::vector<double> weights_of(const ExpertRule& rule, const std::vector<double>& scores, const std::vector<int32_t>& chosen) {
  double sum = 0;
  for (const int32_t e : chosen) sum += scores[e];
  std::vector<double> weights;
  for (const int32_t e : chosen) weights.push_back(rule.scale * scores[e] / (rule.normalize ? sum : 1));
  return weights;
}

// The experts by sorting.
std::vector<int32_t> best_experts(const ExpertRule& rule, std::vector<double> candidates, int64_t count) {
  const auto size = static_cast<int64_t>(candidates.size()) / rule.groups;
  std::vector<std::pair<double, int32_t>> groups, experts;
  for (int64_t g = 0; g < rule.groups; ++g) {
    std::vector<double> group(candidates.begin() + g * size, candidates.begin() + (g + 1) * size);
    std::ranges::sort(group, std::greater{});
    groups.emplace_back(-group[0] - (size > 1 ? group[1] : 0), static_cast<int32_t>(g));
  }
  std::ranges::sort(groups);
  for (int64_t i = 0; i < rule.groups_per_token; ++i)
    for (int64_t e = groups[i].second * size; e < (groups[i].second + 1) * size; ++e)
      experts.emplace_back(-candidates[e], static_cast<int32_t>(e));
  std::ranges::sort(experts);
  std::vector<int32_t> best;
  for (int64_t k = 0; k < count; ++k) best.push_back(experts[k].second);
  std::ranges::sort(best);
  return best;
}

TEST_P(KernelsOnEveryDevice, ChooseExpertsMatchesItsDefinition) {
  for (const auto& [tokens, experts, count] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 1}, {37, 8, 3}, {9, 72, 8}})
    for (const DType dtype : {DType::Float32, DType::Float64})
      for (const bool is_biased : {false, true})
        for (const ExpertRule& rule : kRules) {
          if (count > experts / rule.groups * rule.groups_per_token) continue;
          HostTensor logits = HostTensor::random(dtype, {tokens, experts}, 1);
          for (int64_t e = 0; e < logits.elements(); ++e) logits.set(e, 4 * logits.at(e));
          const HostTensor bias = HostTensor::random(dtype, {experts}, 2);
          Ints chosen;
          const auto run = [&, n = count](Kernels& kernels) {
            Choice choice = choose(kernels, logits, n, rule, is_biased ? &bias : nullptr);
            if (chosen.empty()) chosen = choice.chosen;
            EXPECT_EQ(choice.chosen, chosen);
            return std::vector{choice.weights};
          };
          // Exponentials in double are those of the device's library.
          const HostTensor weights = (dtype == DType::Float32 ? the_cpus_bits_every_way(run) : same_bits_every_way(run))[0];
          for (int64_t t = 0; t < tokens; ++t) {
            const std::vector<double> scores = scores_of(rule.score, row_of(logits, t));
            std::vector<double> candidates = scores;
            for (int64_t e = 0; is_biased && e < experts; ++e) candidates[e] += bias.at(e);
            const std::vector<int32_t> best = best_experts(rule, candidates, count);
            const std::vector<double> expected = weights_of(rule, scores, best);
            for (int64_t k = 0; k < count; ++k) {
              ASSERT_EQ(chosen[t * count + k], best[k]) << "token " << t;
              ASSERT_NEAR(weights.at(t * count + k), expected[k], 32 * sum_unit(dtype) * expected[k]);
            }
          }
        }
}

// The part of a loss that depends on the logits: the weights times their gradients, and both losses of the microbatch.
struct RouterLoss {
  ExpertRule rule;
  int64_t tokens = 0, count = 0;
  double balance = 0, z_loss = 0, gradient_scale = 1;
  std::vector<int64_t> counts;

  double of_token(const std::vector<double>& logits, const std::vector<int32_t>& chosen,
                  const std::vector<double>& dweights) const {
    const std::vector<double> scores = scores_of(rule.score, logits), weights = weights_of(rule, scores, chosen);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);  // 1 with softmax
    double loss = 0, exponentials = 0;
    for (size_t k = 0; k < chosen.size(); ++k) loss += dweights[k] * weights[k];
    const double coefficient = balance * static_cast<double>(logits.size()) / static_cast<double>(count * tokens);
    for (size_t e = 0; e < logits.size(); ++e) {
      loss += gradient_scale * coefficient * static_cast<double>(counts[e]) * scores[e] / sum;
      exponentials += std::exp(logits[e]);
    }
    return loss + gradient_scale * z_loss * std::log(exponentials) * std::log(exponentials);
  }
};

TEST_P(KernelsOnEveryDevice, ChooseExpertsBackwardMatchesFiniteDifferences) {
  constexpr int64_t kTokens = 5, kExperts = 8, kCount = 3;
  for (const ExpertRule& rule : kRules)
    for (const auto& [balance, z_loss] : {std::pair(0.0, 0.0), {0.02, 0.0}, {0.0, 0.01}, {0.02, 0.01}}) {
      RouterLoss loss{rule, 3 * kTokens, kCount, balance, z_loss, 4, {7, 0, 11, 2, 9, 1, 12, 3}};
      const HostTensor logits = HostTensor::random(DType::Float64, {kTokens, kExperts}, 1),
                       dweights = HostTensor::random(DType::Float64, {kTokens, kCount}, 2);
      Choice choice = choose(kernels(), logits, kCount, rule);
      Values<int64_t> counts(loss.counts.begin(), loss.counts.end());
      counts.push_back(loss.tokens);
      Ints targets{0, 3, -1, 5, -1};  // the losses are sums over those that count
      const auto gradient = [&, b = balance, z = z_loss](DType dtype, DType of_logits) {
        HostTensor z_in(dtype, {kTokens, kExperts}), dw_in(dtype, {kTokens, kCount});
        for (int64_t e = 0; e < z_in.elements(); ++e) z_in.set(e, logits.at(e));
        for (int64_t e = 0; e < dw_in.elements(); ++e) dw_in.set(e, dweights.at(e));
        return same_bits_every_way([&](Kernels& kernels) {
          HostTensor dlogits = HostTensor::poisoned(of_logits, {kTokens, kExperts});
          kernels.choose_experts_backward({.logits = z_in.view(),
                                           .chosen = view_of(choice.chosen, {kTokens, kCount}),
                                           .dweights = dw_in.view(),
                                           .counts = b != 0 ? ConstTensorView(view_of(counts)) : ConstTensorView{},
                                           .targets = view_of(targets),
                                           .dlogits = dlogits.view(),
                                           .rule = rule,
                                           .balance = b,
                                           .z_loss = z,
                                           .gradient_scale = number(kernels, loss.gradient_scale)});
          return std::vector{dlogits};
        })[0];
      };
      const HostTensor got = gradient(DType::Float64, DType::Float64);
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t e = 0; e < kExperts; ++e) {
          const std::vector<int32_t> chosen(choice.chosen.begin() + t * kCount, choice.chosen.begin() + (t + 1) * kCount);
          const auto moved = [&](double step) {
            std::vector<double> row = row_of(logits, t);
            row[e] += step;
            RouterLoss of_token = loss;
            if (targets[t] < 0) of_token.balance = of_token.z_loss = 0;
            return of_token.of_token(row, chosen, row_of(dweights, t));
          };
          constexpr double kStep = 1e-5;
          EXPECT_NEAR(got.at(t * kExperts + e), (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-9) << balance << " " << z_loss;
        }
      for (const DType narrow : {DType::Float32, DType::BFloat16}) {
        const HostTensor rounded = gradient(DType::Float32, narrow);
        for (int64_t e = 0; e < got.elements(); ++e)
          EXPECT_NEAR(rounded.at(e), got.at(e), 2e-6 + half_unit(narrow) * std::abs(got.at(e)));
      }
    }
}

struct Order {
  Ints order, places, ends;
};
Order order_of(Kernels& kernels, Ints& chosen, int64_t count, int64_t experts, const Ranges& ranges) {
  const auto rows = static_cast<int64_t>(chosen.size()), of_expert = static_cast<int64_t>(ranges.size());
  Order order{Ints(rows, -1), Ints(rows, -1), Ints(experts * of_expert, -1)};
  kernels.order_by_expert({.chosen = view_of(chosen, {rows / count, count}),
                           .order = view_of(order.order),
                           .places = view_of(order.places, {rows / count, count}),
                           .ends = view_of(order.ends, {experts, of_expert}),
                           .ranges = ranges});
  return order;
}

void expect_is_a_stable_sort(const Order& got, const Ints& chosen, int64_t count, int64_t experts, const Ranges& ranges) {
  std::vector<std::tuple<int32_t, int64_t, int32_t>> rows;  // expert, range, choice
  for (size_t r = 0; r < ranges.size(); ++r)
    for (int64_t choice = ranges[r].begin * count; choice < ranges[r].end * count; ++choice)
      rows.emplace_back(chosen[choice], static_cast<int64_t>(r), static_cast<int32_t>(choice));
  std::ranges::sort(rows);
  for (size_t row = 0; row < rows.size(); ++row) {
    ASSERT_EQ(got.order[row], std::get<2>(rows[row])) << "row " << row;
    ASSERT_EQ(got.places[std::get<2>(rows[row])], static_cast<int32_t>(row));
  }
  for (int32_t e = 0; e < experts; ++e)
    for (size_t r = 0; r < ranges.size(); ++r) {
      const std::tuple next{e, static_cast<int64_t>(r) + 1, int32_t{-1}};
      ASSERT_EQ(got.ends[e * ranges.size() + r], std::ranges::lower_bound(rows, next) - rows.begin()) << e << ", " << r;
    }
}

// Experts in ascending order for each token, drawn so that some are never chosen.
Ints random_choices(int64_t tokens, int64_t count, int64_t experts) {
  Ints chosen;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> of_token;
    for (uint64_t draw = 0; static_cast<int64_t>(of_token.size()) < count; ++draw) {
      const auto e = static_cast<int32_t>(philox(5, draw, static_cast<uint64_t>(t))[0] % static_cast<uint64_t>(experts));
      const bool is_new = std::ranges::find(of_token, e) == of_token.end();
      if (is_new && (e % 4 != 1 || experts < 5)) of_token.push_back(e);
    }
    std::ranges::sort(of_token);
    chosen.insert(chosen.end(), of_token.begin(), of_token.end());
  }
  return chosen;
}

TEST_P(KernelsOnEveryDevice, OrderByExpertIsAStableSortByExpertAndRange) {
  const auto single_tokens = [](int64_t tokens) {  // the last token first
    Ranges ranges;
    for (int64_t t = tokens; t-- > 0;) ranges.push_back({t, t + 1});
    return ranges;
  };
  const std::tuple<int64_t, int64_t, int64_t, Ranges> cases[] = {
      {0, 2, 3, {{0, 0}}},
      {3, 2, 3, {{0, 3}}},
      {300, 1, 6, {{0, 300}}},
      {300, 3, 9, {{0, 300}}},
      {77, 2, 8, {{40, 60}, {0, 13}, {13, 13}, {60, 77}, {13, 40}, {77, 77}}},
      {takes_too_long(1300 * 3 * 300) ? 530 : 1300, 2, 3, single_tokens(takes_too_long(1300 * 3 * 300) ? 530 : 1300)}};
  for (const auto& [tokens, count, experts, ranges] : cases)
    GetParam()->every_way([&, n = count, e = experts, t = tokens, &r = ranges](Kernels& kernels) {
      if (takes_too_long(static_cast<int64_t>(r.size()) * 100) && &r != &std::get<3>(cases[5])) return;
      Ints chosen = random_choices(t, n, e);
      expect_is_a_stable_sort(order_of(kernels, chosen, n, e, r), chosen, n, e, r);
    });
}

TEST_P(KernelsOnEveryDevice, OrderByExpertGivesAllTokensToOneExpert) {
  for (const int32_t expert : {0, 2, 4}) {
    Ints chosen(300, expert);
    const Order order = order_of(kernels(), chosen, 1, 5, {{0, 300}});
    expect_is_a_stable_sort(order, chosen, 1, 5, {{0, 300}});
  }
}

TEST_P(KernelsOnEveryDevice, CountChoicesCountsTokensWithTargets) {
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{700}}) {
    constexpr int64_t kCount = 3, kExperts = 11;
    Ints chosen, targets;
    Values<int64_t> all(kExperts + 1, 0), counted(kExperts + 1, 0);
    for (int64_t t = 0; t < tokens; ++t) {
      targets.push_back(t % 7 == 3 ? -1 : static_cast<int32_t>(t % 5));
      ++all[kExperts];
      if (targets.back() >= 0) ++counted[kExperts];
      for (int64_t k = 0; k < kCount; ++k) {
        chosen.push_back(static_cast<int32_t>((t * t + 4 * k) % kExperts));
        ++all[chosen.back()];
        if (targets.back() >= 0) ++counted[chosen.back()];
      }
    }
    Values<int64_t> counts(kExperts + 1, -1);
    kernels().count_choices({.chosen = view_of(chosen, {tokens, kCount}), .counts = view_of(counts)});
    EXPECT_EQ(counts, all);
    kernels().count_choices({view_of(chosen, {tokens, kCount}), view_of(targets), view_of(counts)});
    EXPECT_EQ(counts, counted);
  }
}

// Four tokens in two sequences; the counts and the losses of the microbatch were computed independently.
TEST_P(KernelsOnEveryDevice, CountRowsGivesHowOftenExpertsAreChosen) {
  const HostTensor logits = tensor_of(DType::Float64, {4, 4}, {2, 1, 0.5, -1, 0, 3, 1, 2, 1, 1.5, 0, 0.5, 2.5, 0, -1, 1});
  Choice choice = choose(kernels(), logits, 2, kSwitch);
  EXPECT_EQ(choice.chosen, (Ints{0, 1, 1, 3, 0, 1, 0, 3}));
  for (const Ranges& ranges : {Ranges{{0, 4}}, Ranges{{2, 4}, {0, 2}}}) {
    Order order = order_of(kernels(), choice.chosen, 2, 4, ranges);
    Values<int64_t> counts(4, -1);
    kernels().count_rows({view_of(order.ends, {4, static_cast<int64_t>(ranges.size())}), view_of(counts)});
    EXPECT_EQ(counts, (Values<int64_t>{3, 3, 0, 2}));
    kernels().count_rows({view_of(order.ends, {4, static_cast<int64_t>(ranges.size())}), view_of(counts), true});
    EXPECT_EQ(counts, (Values<int64_t>{6, 6, 0, 4}));
  }
  double balance = 0, z = 0;
  for (int64_t t = 0; t < 4; ++t) {
    const std::vector<int32_t> chosen(choice.chosen.begin() + 2 * t, choice.chosen.begin() + 2 * t + 2);
    balance += RouterLoss{kSwitch, 4, 2, 1, 0, 1, {3, 3, 0, 2}}.of_token(row_of(logits, t), chosen, {0, 0});
    z += RouterLoss{kSwitch, 4, 2, 0, 1, 1, {3, 3, 0, 2}}.of_token(row_of(logits, t), chosen, {0, 0});
  }
  EXPECT_NEAR(balance / 4, 1.294554, 1e-6);
  EXPECT_NEAR(z / 4, 7.768154, 1e-6);
}

TEST_P(KernelsOnEveryDevice, GatheredRowsCombineToAsManyTimesTheInput) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [tokens, count, width] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {50, 1, 64}, {50, 2, 33}, {23, 3, 300}}) {
      if (takes_too_long(tokens * count * width)) continue;
      const HostTensor x = HostTensor::random(dtype, {tokens, width}, 1);
      Ints chosen = random_choices(tokens, count, 7);
      Order order = order_of(kernels(), chosen, count, 7, {{0, tokens}});
      const auto moved = same_bits_every_way([&, t = tokens, n = count, w = width](Kernels& kernels) {
        HostTensor rows = HostTensor::poisoned(dtype, {t * n, w}), out = HostTensor::poisoned(dtype, {t, w});
        kernels.gather_rows({x.view(), view_of(order.order), rows.view()});
        kernels.combine_rows({rows.view(), view_of(order.places, {t, n}), out.view()});
        return std::vector{rows, out};
      });
      HostTensor expected(dtype, {tokens, width});
      for (int64_t e = 0; e < x.elements(); ++e) expected.set(e, static_cast<double>(count) * x.at(e));
      EXPECT_EQ(moved[1], expected) << name_of(dtype);
      for (int64_t row = 0; row < tokens * count; ++row)
        for (int64_t col = 0; col < width; ++col)
          ASSERT_EQ(moved[0].at(row * width + col), x.at(order.order[row] / count * width + col));
    }
}

TEST_P(KernelsOnEveryDevice, CombineRowsAddsInTheOrderOfChoicesAndRoundsOnce) {
  Ints places{5, 2, 0, 1, 4, 3};
  const auto combined = [&](DType dtype, double small) {
    const HostTensor x = tensor_of(DType::Float32, {6, 1}, {small, small, small, 1, small, 1});
    HostTensor out = HostTensor::poisoned(dtype, {2, 1});
    kernels().combine_rows({x.view(), view_of(places, {2, 3}), out.view()});
    return std::pair(out.at(0), out.at(1));
  };
  EXPECT_EQ(combined(DType::Float32, 0x1p-24), std::pair(1.0, 1 + 0x1p-23));
  EXPECT_EQ(combined(DType::BFloat16, 0x1p-8), std::pair(1 + 0x1p-7, 1 + 0x1p-7));
  EXPECT_EQ(combined(DType::Float16, 0x1p-11), std::pair(1 + 0x1p-10, 1 + 0x1p-10));
}

TEST_P(KernelsOnEveryDevice, CombineRowsHasTheCpusBits) {
  Ints chosen = random_choices(21, 4, 9);
  Order order = order_of(kernels(), chosen, 4, 9, {{0, 21}});
  for (const auto& [dtype, from] :
       {std::pair(DType::Float32, DType::Float32), {DType::BFloat16, DType::Float32}, {DType::Float16, DType::Float16}}) {
    const HostTensor x = HostTensor::random(from, {84, 40}, 1);
    the_cpus_bits_every_way([&, to = dtype](Kernels& kernels) {
      HostTensor out = HostTensor::poisoned(to, {21, 40});
      kernels.combine_rows({x.view(), view_of(order.places, {21, 4}), out.view()});
      return std::vector{out};
    });
  }
}

// What WeightedSwiGluBackward writes for rows of [gate | up] in an order that is not that of choices.
struct Activation {
  int64_t rows, width;
  HostTensor gate_up, dy, weights;
  Ints order;

  Activation(DType dtype, int64_t row_count, int64_t columns)
      : rows(row_count),
        width(columns),
        gate_up(HostTensor::random(dtype, {row_count, 2 * columns}, 1)),
        dy(HostTensor::random(dtype, {row_count, columns}, 2)),
        weights(HostTensor::random(statistics_of(dtype), {row_count, 1}, 3)),
        order(row_count) {
    for (int64_t e = 0; e < gate_up.elements(); ++e) gate_up.set(e, e % 97 == 5 ? -100 : 8 * gate_up.at(e));
    for (int64_t row = 0; row < rows; ++row) order[row] = static_cast<int32_t>((row * 5 + 3) % rows);
  }
  // Columns [begin, end) of the activation.
  Activation part(int64_t begin, int64_t end) const {
    Activation of_part(dy.view().dtype, rows, end - begin);
    of_part.order = order;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < of_part.width; ++col) {
        of_part.dy.set(row * of_part.width + col, dy.at(row * width + begin + col));
        for (int64_t half = 0; half < 2; ++half)
          of_part.gate_up.set((2 * row + half) * of_part.width + col, gate_up.at((2 * row + half) * width + begin + col));
      }
    return of_part;
  }
  HostTensor forward(Kernels& kernels) {
    HostTensor y = HostTensor::poisoned(dy.view().dtype, {rows, width});
    kernels.weighted_swiglu({gate_up.view(), weights.view(), view_of(order), y.view(), {}});
    return y;
  }
  std::vector<HostTensor> backward(Kernels& kernels, const std::vector<int64_t>& ends) {
    HostTensor dgate_up = HostTensor::poisoned(dy.view().dtype, {rows, 2 * width});
    HostTensor dweights = HostTensor::poisoned(weights.view().dtype, {rows, 1});
    kernels.weighted_swiglu_backward({.dy = dy.view(),
                                      .gate_up = gate_up.view(),
                                      .weights = weights.view(),
                                      .order = view_of(order),
                                      .dgate_up = dgate_up.view(),
                                      .dweights = dweights.view(),
                                      .ends = ends});
    return {dgate_up, dweights};
  }
};

TEST_P(KernelsOnEveryDevice, WeightedSwiGluAndItsGradientMatchDoubleReference) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {4, 17}, {2, 1032}, {71, 515}}) {
      if (takes_too_long(rows * width)) continue;
      Activation a(dtype, rows, width);
      const HostTensor y = same_bits_every_way([&](Kernels& kernels) { return std::vector{a.forward(kernels)}; })[0];
      const auto gradients = same_bits_every_way([&](Kernels& kernels) { return a.backward(kernels, {}); });
      const auto near = [&, type = dtype](double got, double expected, double scale) {
        const double tiny = type == DType::Float16 ? 0x1p-25 : 1e-38;
        ASSERT_NEAR(got, expected, 64 * sum_unit(type) * scale + half_unit(type) * std::abs(expected) + tiny);
      };
      for (int64_t row = 0; row < rows; ++row) {
        double dweight = 0, terms = 0;
        const double weight = a.weights.at(a.order[row]);
        for (int64_t col = 0; col < width; ++col) {
          const int64_t gate = 2 * row * width + col, up = gate + width;
          const double g = a.gate_up.at(gate), u = a.gate_up.at(up), s = 1 / (1 + std::exp(-g)), d = a.dy.at(row * width + col);
          const double scale = (1 + std::abs(g)) * (1 + std::abs(u));
          near(y.at(row * width + col), weight * g * s * u, scale);
          near(gradients[0].at(gate), d * weight * u * (s + g * s * (1 - s)), scale);
          near(gradients[0].at(up), d * weight * g * s, scale);
          dweight += d * g * s * u;
          terms += std::abs(d) * scale;
        }
        const double tolerance = static_cast<double>(64 + width) * sum_unit(dtype) * terms;
        ASSERT_NEAR(gradients[1].at(a.order[row]), dweight, tolerance) << name_of(dtype) << " " << row;
      }
    }
}

TEST_P(KernelsOnEveryDevice, WeightedSwiGluBackwardAddsUpOverTwoPartsToTheSameBits) {
  const std::vector<int64_t> ends{9, 41, 41, 73, 80, 130, 131, 333};
  for (const DType dtype : kFloatTypes) {
    Activation whole(dtype, 11, 333), left = whole.part(0, 73), right = whole.part(73, 333);
    const auto all = same_bits_every_way([&](Kernels& kernels) { return whole.backward(kernels, ends); });
    const auto first = left.backward(kernels(), {9, 41, 41, 73}), second = right.backward(kernels(), {7, 57, 58, 260});
    HostTensor sum = second[1];
    kernels().add(first[1].view(), sum.view());
    EXPECT_EQ(all[1], sum) << name_of(dtype);
    EXPECT_EQ(all[0], whole.backward(kernels(), {})[0]);
    for (int64_t e = 0; e < first[0].elements(); ++e)
      ASSERT_EQ(first[0].at(e), all[0].at(e / 73 * 333 + e % 73)) << name_of(dtype) << " " << e;
  }
}

TEST_P(KernelsOnEveryDevice, ChooseExpertsRefusesWhatDoesNotFit) {
  HostTensor logits(DType::Float32, {3, 8}), weights(DType::Float32, {3, 5}), half(DType::BFloat16, {3, 8});
  Ints chosen(15), order(15);
  const auto choose_with = [&](const ExpertRule& rule) {
    kernels().choose_experts(
        {.logits = logits.view(), .chosen = view_of(chosen, {3, 5}), .weights = weights.view(), .rule = rule});
  };
  EXPECT_THROW(choose_with({.groups = 3}), std::logic_error);
  EXPECT_THROW(choose_with({.groups = 4, .groups_per_token = 2}), std::logic_error);  // 4 experts for 5 choices
  EXPECT_THROW(choose_with({.groups = 2, .groups_per_token = 3}), std::logic_error);
  EXPECT_THROW(kernels().choose_experts({.logits = half.view(), .chosen = view_of(chosen, {3, 5}), .weights = weights.view()}),
               std::logic_error);
  EXPECT_THROW(order_of(kernels(), chosen, 5, 8, {{0, 2}}), std::logic_error);
  EXPECT_THROW(order_of(kernels(), chosen, 5, 8, {{0, 4}}), std::logic_error);
  EXPECT_THROW(kernels().gather_rows({logits.view(), view_of(order), weights.view()}), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::experts_test
