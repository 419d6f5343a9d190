// Choosing experts, ordering and moving their rows, and their activation. One thread computes a token or a row.
#include "kernels/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/balanced_tree.h"
#include "kernels/cpu/fused/gradient_types.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/scratch.h"
#include "kernels/expert_balance.h"
#include "kernels/verdict.h"

namespace trivet::kernels::cpu {
namespace {

template <typename Sum>
struct SwiGluLimits {
  explicit SwiGluLimits(const SwiGluRule& rule)
      : limit(rule.limit > 0 ? static_cast<Sum>(rule.limit) : std::numeric_limits<Sum>::infinity()),
        alpha(static_cast<Sum>(rule.alpha)),
        offset(static_cast<Sum>(rule.offset)) {}
  Sum limit, alpha, offset;
};

}  // namespace
}  // namespace trivet::kernels::cpu

#define TRIVET_LOOPS "kernels/cpu/fused/experts_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

// The scores of one token's logits.
template <typename Sum>
struct Scores {
  std::vector<Sum> p;
  Sum log_sum_exp = 0;  // logsumexp(logits), with softmax
};

template <typename Sum>
void find_scores(ExpertScore score, const Sum* logits, Scores<Sum>& scores) {
  const auto count = static_cast<int64_t>(scores.p.size());
  if (score == ExpertScore::Sigmoid)
    return by_isa(&baseline::sigmoids<Sum>, &v3::sigmoids<Sum>, &v4::sigmoids<Sum>)(logits, scores.p.data(), count);
  const Sum most = *std::max_element(logits, logits + count);
  const Sum sum = by_isa(&baseline::softmax<Sum>, &v3::softmax<Sum>, &v4::softmax<Sum>)(logits, most, scores.p.data(), count);
  scores.log_sum_exp = most + std::log(sum);
}

// Chooses for one token; memory is kept from token to token.
template <typename Sum>
class Choice {
 public:
  Choice(const ChooseExperts& args) : args_(args), experts_(args.logits.shape[1]), chosen_(args.chosen.shape[1]) {
    scores_.p.resize(static_cast<size_t>(experts_));
    numbers_.resize(static_cast<size_t>(experts_));
    candidates_.resize(static_cast<size_t>(experts_));
  }

  void choose(int64_t token) {
    const ExpertRule& rule = args_.rule;
    find_scores(args_.logits.as<Sum>() + token * experts_);
    for (int64_t e = 0; e < experts_; ++e) {
      const Sum biased = scores_.p[e] + (args_.bias.absent() ? Sum(0) : args_.bias.as<Sum>()[e]);
      candidates_[e] = {std::isnan(biased) ? kSmallest : biased, static_cast<int32_t>(e)};
    }
    int64_t left = experts_;
    if (rule.groups > rule.groups_per_token) left = keep_groups();
    int32_t* chosen = args_.chosen.as<int32_t>() + token * chosen_;
    std::partial_sort(candidates_.begin(), candidates_.begin() + chosen_, candidates_.begin() + left, before);
    for (int64_t k = 0; k < chosen_; ++k) chosen[k] = candidates_[k].number;
    std::sort(chosen, chosen + chosen_);
    Sum sum = rule.score == ExpertScore::Sigmoid ? Sum(1e-20) : Sum(0);
    for (int64_t k = 0; k < chosen_; ++k) sum += scores_.p[chosen[k]];
    Sum* weights = args_.weights.as<Sum>() + token * chosen_;
    for (int64_t k = 0; k < chosen_; ++k)
      weights[k] = scores_.p[chosen[k]] / (rule.normalize ? sum : Sum(1)) * static_cast<Sum>(rule.scale);
    candidates_.resize(static_cast<size_t>(experts_));
  }

 private:
  struct Candidate {
    Sum value;
    int32_t number;
  };
  static bool before(const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.number < b.number;
  }
  static constexpr Sum kSmallest = -std::numeric_limits<Sum>::infinity();

  // Scores of logits that are numbers do not depend on those that are not.
  void find_scores(const Sum* logits) {
    std::transform(logits, logits + experts_, numbers_.begin(), [](Sum z) { return std::isnan(z) ? kSmallest : z; });
    cpu::find_scores(args_.rule.score, numbers_.data(), scores_);
    for (int64_t e = 0; e < experts_; ++e)
      if (std::isnan(logits[e])) scores_.p[e] = logits[e];
  }

  // Moves the experts of the chosen groups to the front, and returns how many there are.
  int64_t keep_groups() {
    const int64_t groups = args_.rule.groups, kept = args_.rule.groups_per_token, size = experts_ / groups;
    std::vector<Candidate> of_groups;
    for (int64_t group = 0; group < groups; ++group) {
      const auto first = candidates_.begin() + group * size;
      std::vector<Candidate> two(first, first + size);
      std::partial_sort(two.begin(), two.begin() + std::min<int64_t>(2, size), two.end(), before);
      of_groups.push_back({two[0].value + (size > 1 ? two[1].value : Sum(0)), static_cast<int32_t>(group)});
    }
    std::partial_sort(of_groups.begin(), of_groups.begin() + kept, of_groups.end(), before);
    std::vector<Candidate> kept_experts;
    for (int64_t i = 0; i < kept; ++i) {
      const auto first = candidates_.begin() + of_groups[i].number * size;
      kept_experts.insert(kept_experts.end(), first, first + size);
    }
    std::copy(kept_experts.begin(), kept_experts.end(), candidates_.begin());
    return static_cast<int64_t>(kept_experts.size());
  }

  const ChooseExperts& args_;
  int64_t experts_, chosen_;
  Scores<Sum> scores_;
  std::vector<Sum> numbers_;  // the logits
  std::vector<Candidate> candidates_;
};

// The gradients of one token's logits.
template <typename Sum>
class ChoiceGradient {
 public:
  ChoiceGradient(const ChooseExpertsBackward& args)
      : args_(args), experts_(args.logits.shape[1]), chosen_(args.chosen.shape[1]) {
    scores_.p.resize(static_cast<size_t>(experts_));
    dp_.resize(static_cast<size_t>(experts_));
    scale_ = static_cast<Sum>(args.gradient_scale.value());
    if (!args.counts.absent())
      balance_ = static_cast<Sum>(args.balance * static_cast<double>(experts_) /
                                  (static_cast<double>(chosen_) * static_cast<double>(args.counts.as<int64_t>()[experts_]))) *
                 scale_;
  }

  const std::vector<Sum>& make(int64_t token) {
    const ExpertRule& rule = args_.rule;
    const bool sigmoid = rule.score == ExpertScore::Sigmoid;
    const Sum* logits = args_.logits.as<Sum>() + token * experts_;
    const int32_t* chosen = args_.chosen.as<int32_t>() + token * chosen_;
    const Sum* dweights = args_.dweights.as<Sum>() + token * chosen_;
    find_scores(rule.score, logits, scores_);
    std::ranges::fill(dp_, Sum(0));
    Sum sum = sigmoid ? Sum(1e-20) : Sum(0), along = 0;
    for (int64_t k = 0; k < chosen_; ++k) {
      sum += scores_.p[chosen[k]];
      along += dweights[k] * scores_.p[chosen[k]];
    }
    for (int64_t k = 0; k < chosen_; ++k)
      dp_[chosen[k]] = static_cast<Sum>(rule.scale) * (rule.normalize ? (dweights[k] - along / sum) / sum : dweights[k]);
    const bool counts = args_.targets.absent() || args_.targets.as<int32_t>()[token] >= 0;
    if (counts && !args_.counts.absent()) add_balance(sigmoid);
    through_scores(sigmoid);
    if (counts && args_.z_loss != 0) {
      // d/dz of logsumexp^2 is 2 logsumexp softmax(z), whatever the scores are.
      if (sigmoid) {
        find_scores(ExpertScore::Softmax, logits, scores_);
      }
      const Sum factor = Sum(2) * static_cast<Sum>(args_.z_loss) * scale_ * scores_.log_sum_exp;
      for (int64_t e = 0; e < experts_; ++e) dp_[e] += factor * scores_.p[e];
    }
    return dp_;
  }

 private:
  void add_balance(bool sigmoid) {
    const int64_t* counts = args_.counts.as<int64_t>();
    if (!sigmoid) {
      for (int64_t e = 0; e < experts_; ++e) dp_[e] += balance_ * static_cast<Sum>(counts[e]);
      return;
    }
    Sum sum = Sum(1e-20), along = 0;
    for (int64_t e = 0; e < experts_; ++e) {
      sum += scores_.p[e];
      along += static_cast<Sum>(counts[e]) * scores_.p[e];
    }
    for (int64_t e = 0; e < experts_; ++e) dp_[e] += balance_ * (static_cast<Sum>(counts[e]) - along / sum) / sum;
  }
  // From gradients of scores to those of logits.
  void through_scores(bool sigmoid) {
    if (sigmoid) {
      for (int64_t e = 0; e < experts_; ++e) dp_[e] *= scores_.p[e] * (Sum(1) - scores_.p[e]);
      return;
    }
    Sum along = 0;
    for (int64_t e = 0; e < experts_; ++e) along += dp_[e] * scores_.p[e];
    for (int64_t e = 0; e < experts_; ++e) dp_[e] = scores_.p[e] * (dp_[e] - along);
  }

  const ChooseExpertsBackward& args_;
  int64_t experts_, chosen_;
  Sum scale_ = 1, balance_ = 0;
  Scores<Sum> scores_;
  std::vector<Sum> dp_;
};

}  // namespace

void compute(const ChooseExperts& args, int threads) {
  const auto run = [&]<typename Sum>() {
    for_each_range(args.logits.shape[0], threads, 1, 16 * args.logits.shape[1], [&](int64_t begin, int64_t end) {
      Choice<Sum> choice(args);
      for (int64_t token = begin; token < end; ++token) choice.choose(token);
    });
  };
  args.logits.dtype == DType::Float64 ? run.operator()<double>() : run.operator()<float>();
}

void compute(const ChooseExpertsBackward& args, int threads) {
  const auto run = [&]<typename Sum, typename T>() {
    for_each_range(args.logits.shape[0], threads, 1, 16 * args.logits.shape[1], [&](int64_t begin, int64_t end) {
      ChoiceGradient<Sum> gradient(args);
      for (int64_t token = begin; token < end; ++token) {
        T* out = args.dlogits.as<T>() + token * args.logits.shape[1];
        std::ranges::transform(gradient.make(token), out, [](Sum value) { return narrow<T>(value); });
      }
    });
  };
  dispatch_float(args.dlogits.dtype, [&]<typename T>() {
    args.logits.dtype == DType::Float64 ? run.template operator()<double, T>() : run.template operator()<float, T>();
  });
}

void compute(const OrderByExpert& args, int) {
  const int64_t chosen = args.chosen.shape[1], experts = args.ends.shape[0], ranges = args.ends.shape[1];
  const int32_t* choices = args.chosen.as<int32_t>();
  int32_t *ends = args.ends.as<int32_t>(), *order = args.order.as<int32_t>(), *places = args.places.as<int32_t>();
  std::fill_n(ends, experts * ranges, 0);
  for (int64_t r = 0; r < ranges; ++r)
    for (int64_t choice = args.ranges[r].begin * chosen; choice < args.ranges[r].end * chosen; ++choice)
      ++ends[choices[choice] * ranges + r];
  std::partial_sum(ends, ends + experts * ranges, ends);
  std::vector<int32_t> next(static_cast<size_t>(experts * ranges), 0);
  std::copy_n(ends, experts * ranges - 1, next.begin() + 1);
  for (int64_t r = 0; r < ranges; ++r)
    for (int64_t choice = args.ranges[r].begin * chosen; choice < args.ranges[r].end * chosen; ++choice) {
      const int32_t row = next[choices[choice] * ranges + r]++;
      order[row] = static_cast<int32_t>(choice);
      places[choice] = row;
    }
}

void compute(const CountChoices& args, int) {
  const int64_t chosen = args.chosen.shape[1], experts = args.counts.elements() - 1;
  auto* const counts = args.counts.as<int64_t>();
  std::fill_n(counts, experts + 1, int64_t{0});
  for (int64_t token = 0; token < args.chosen.shape[0]; ++token) {
    if (!args.targets.absent() && args.targets.as<int32_t>()[token] < 0) continue;
    ++counts[experts];
    for (int64_t k = 0; k < chosen; ++k) ++counts[args.chosen.as<int32_t>()[token * chosen + k]];
  }
}

void compute(const CountRows& args, int) {
  const int64_t ranges = args.ends.shape[1];
  int64_t before = 0;
  for (int64_t e = 0; e < args.ends.shape[0]; ++e) {
    const int64_t end = args.ends.as<int32_t>()[(e + 1) * ranges - 1];
    int64_t& count = args.counts.as<int64_t>()[e];
    count = (args.accumulate ? count : 0) + end - before;
    before = end;
  }
}

void compute(const GatherRows& args, int threads) {
  const int64_t rows = args.out.shape[0], width = args.x.shape[1];
  if (rows == 0) return;
  const int64_t of_token = rows / args.x.shape[0];
  const auto bytes = static_cast<size_t>(width * size_of(args.x.dtype));
  for_each_range(rows, threads, 1, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(static_cast<std::byte*>(args.out.data) + row * bytes,
                  static_cast<const std::byte*>(args.x.data) + args.order.as<int32_t>()[row] / of_token * bytes, bytes);
  });
}

void compute(const CombineRows& args, int threads) {
  const int64_t chosen = args.places.shape[1], width = args.out.shape[1];
  dispatch_gradient(args.out.dtype, args.x.dtype, [&]<typename T, typename From>() {
    const auto loop = by_isa(&baseline::add_rows<T, From>, &v3::add_rows<T, From>, &v4::add_rows<T, From>);
    for_each_range(args.out.shape[0], threads, 1, width * chosen, [&](int64_t begin, int64_t end) {
      std::vector<const From*> rows(static_cast<size_t>(chosen));
      for (int64_t token = begin; token < end; ++token) {
        for (int64_t k = 0; k < chosen; ++k)
          rows[k] = args.x.as<From>() + args.places.as<int32_t>()[token * chosen + k] * width;
        loop(rows.data(), chosen, args.out.as<T>() + token * width, width);
      }
    });
  });
}

void compute(const WeightedSwiGlu& args, int threads) {
  dispatch_float(args.y.dtype, [&]<typename T>() {
    const auto usual = by_isa(&baseline::weighted_swiglu<T>, &v3::weighted_swiglu<T>, &v4::weighted_swiglu<T>);
    const auto limited =
        by_isa(&baseline::weighted_limited_swiglu<T>, &v3::weighted_limited_swiglu<T>, &v4::weighted_limited_swiglu<T>);
    const SwiGluLimits<SumOf<T>> limits(args.rule);
    const T* gate_up = args.gate_up.as<T>();
    const auto* weights = args.weights.as<SumOf<T>>();
    const int64_t width = args.y.shape[1];
    for_each_range(args.y.shape[0], threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T *gate = gate_up + 2 * row * width, *up = gate + width;
        T* y = args.y.as<T>() + row * width;
        const auto weight = weights[args.order.as<int32_t>()[row]];
        args.rule.usual() ? usual(gate, up, y, weight, width) : limited(gate, up, y, weight, width, limits);
      }
    });
  });
}

void compute(const WeightedSwiGluBackward& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto usual =
        by_isa(&baseline::weighted_swiglu_backward<T>, &v3::weighted_swiglu_backward<T>, &v4::weighted_swiglu_backward<T>);
    const auto limited = by_isa(&baseline::weighted_limited_swiglu_backward<T>, &v3::weighted_limited_swiglu_backward<T>,
                                &v4::weighted_limited_swiglu_backward<T>);
    const SwiGluLimits<Sum> limits(args.rule);
    const auto sum_of = by_isa(&baseline::sum_of<Sum>, &v3::sum_of<Sum>, &v4::sum_of<Sum>);
    const T *dy = args.dy.as<T>(), *gate_up = args.gate_up.as<T>();
    T* dgate_up = args.dgate_up.as<T>();
    const int64_t width = args.dy.shape[1];
    const std::vector<int64_t> ends = args.ends.empty() ? std::vector<int64_t>{width} : args.ends;
    for_each_range(args.dy.shape[0], threads, 1, 2 * width, [&](int64_t begin, int64_t end) {
      thread_local Scratch scratch;
      Sum* terms = scratch.reserve_elements<Sum>(width);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t gate = 2 * row * width, up = gate + width;
        const int32_t choice = args.order.as<int32_t>()[row];
        const Sum weight = args.weights.as<Sum>()[choice];
        if (args.rule.usual())
          usual(dy + row * width, gate_up + gate, gate_up + up, dgate_up + gate, dgate_up + up, terms, weight, width);
        else
          limited(dy + row * width, gate_up + gate, gate_up + up, dgate_up + gate, dgate_up + up, terms, weight, width, limits);
        const auto sum = balanced_sum<Sum>(0, static_cast<int64_t>(ends.size()), [&](int64_t chunk) -> std::optional<Sum> {
          const int64_t first = chunk == 0 ? 0 : ends[chunk - 1];
          if (first == ends[chunk]) return std::nullopt;
          return sum_of(terms + first, ends[chunk] - first);
        });
        args.dweights.as<Sum>()[choice] = sum.value_or(Sum(0));
      }
    });
  });
}

void compute(const AddExpertBias& args, int threads) {
  const int64_t rows = args.out.shape[0], width = args.out.shape[1], ranges = args.ends.shape[1];
  const int32_t* ends = args.ends.as<int32_t>();
  dispatch_float(args.out.dtype, [&]<typename T>() {
    const auto add = by_isa(&baseline::add_to<T>, &v3::add_to<T>, &v4::add_to<T>);
    for_each_range(rows, threads, 1, width, [&](int64_t begin, int64_t end) {
      int64_t expert = 0;
      for (int64_t row = begin; row < end; ++row) {
        while (ends[(expert + 1) * ranges - 1] <= row) ++expert;
        add(args.bias.as<T>() + expert * width, args.out.as<T>() + row * width, width);
      }
    });
  });
}

void compute(const SpreadWeights& args, int threads) {
  const int64_t chosen = args.chosen.shape[1], experts = args.out.shape[1];
  dispatch_float(args.out.dtype, [&]<typename T>() {
    for_each_range(args.out.shape[0], threads, 1, experts, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        T* out = args.out.as<T>() + token * experts;
        std::fill_n(out, experts, T{});
        for (int64_t k = token * chosen; k < (token + 1) * chosen; ++k)
          out[args.chosen.as<int32_t>()[k]] = narrow<T>(args.weights.as<SumOf<T>>()[k]);
      }
    });
  });
}

void compute(const AddChosen& args, int threads) {
  const int64_t chosen = args.chosen.shape[1], experts = args.x.shape[1];
  dispatch_float(args.x.dtype, [&]<typename T>() {
    for_each_range(args.x.shape[0], threads, 1, chosen, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin * chosen; k < end * chosen; ++k)
        args.out.as<SumOf<T>>()[k] += widen<SumOf<T>>(args.x.as<T>()[k / chosen * experts + args.chosen.as<int32_t>()[k]]);
    });
  });
}

void compute(const AddGated& args, int threads) {
  dispatch_float(args.y.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto gates = by_isa(&baseline::sigmoids<Sum>, &v3::sigmoids<Sum>, &v4::sigmoids<Sum>);
    const auto loop = by_isa(&baseline::add_scaled<T>, &v3::add_scaled<T>, &v4::add_scaled<T>);
    const int64_t width = args.y.shape[1];
    for_each_range(args.y.shape[0], threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        Sum gate = 0;
        gates(args.logits.as<Sum>() + row, &gate, 1);
        loop(args.x.as<T>() + row * width, gate, args.y.as<T>() + row * width, width);
      }
    });
  });
}

void compute(const AddGatedBackward& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto gates = by_isa(&baseline::sigmoids<Sum>, &v3::sigmoids<Sum>, &v4::sigmoids<Sum>);
    const auto loop = by_isa(&baseline::add_scaled_backward<T>, &v3::add_scaled_backward<T>, &v4::add_scaled_backward<T>);
    const int64_t width = args.dy.shape[1];
    for_each_range(args.dy.shape[0], threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Sum logit = args.logits.as<Sum>()[row];
        const std::array<Sum, 2> logits{logit, -logit};
        std::array<Sum, 2> open{};  // the gate, and 1 - the gate without cancellation
        gates(logits.data(), open.data(), 2);
        const int64_t first = row * width;
        const Sum dgate = loop(args.dy.as<T>() + first, args.x.as<T>() + first, open[0], args.dx.as<T>() + first, width);
        args.dlogits.as<T>()[row] = static_cast<T>(dgate * open[0] * open[1]);
      }
    });
  });
}

void compute(const BalanceExperts& args, int) {
  if (!args.verdict.absent() && args.verdict.as<double>()[kApply] == 0) return;
  const int64_t experts = args.counts.elements(), *counts = args.counts.as<int64_t>();
  const int64_t all = std::accumulate(counts, counts + experts, int64_t{0});
  for (int64_t i = 0; i < args.bias.elements(); ++i)
    args.bias.as<float>()[i] = balanced_bias(args.bias.as<float>()[i], all, experts, counts[args.first + i], args.rate);
}

}  // namespace trivet::kernels::cpu
