// Connectionist temporal classification by the forward-backward algorithm (Graves et al. 2006). Each sample is done by one
// thread; their losses are added in order.
//
//   T steps, V classes, S = 2 x characters + 1 states: blank, character, blank, character ... blank
//   y[t][k]      log of the probability of class k at step t
//   alpha[t][s]  log of the probability of all beginnings of paths that are in state s at step t
//   beta[t][s]   log of the probability of all rests of such paths, after step t
//
// A path stays in its state, moves to the next one, or skips the blank between two characters that differ. It is in state s at
// step t with the probability exp(alpha[t][s] + beta[t][s] - log probability of the target).
#include "kernels/ctc.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/pieces.h"

namespace trivet::kernels::cpu {
namespace {

constexpr int32_t kBlank = 0;

constexpr int64_t kResults = 3;  // per sample: its loss, whether it counts, whether its target is spelled

// Copies the characters of a target and returns them.
std::span<const int32_t> characters_of(std::span<const int32_t> target, int32_t* to) {
  int32_t* const end = std::ranges::copy_if(target, to, [](int32_t value) { return value > kBlank; }).out;
  return {to, end};
}

bool counts_sample(std::span<const int32_t> target) {
  return std::ranges::any_of(target, [](int32_t value) { return value >= 0; });
}

template <typename Sum>
constexpr Sum kImpossible = -std::numeric_limits<Sum>::infinity();

// log(exp(a) + exp(b))
template <typename Sum>
Sum log_add(Sum a, Sum b) {
  if (a < b) std::swap(a, b);
  return b == kImpossible<Sum> ? a : a + std::log1p(std::exp(b - a));
}

template <typename T>
class CtcSample {
 public:
  using Sum = SumOf<T>;

  CtcSample(const Ctc& args, int64_t sample, std::span<const int32_t> target)
      : steps_(args.logits.shape[1]),
        classes_(args.logits.shape[2]),
        logits_(args.logits.as<T>() + sample * steps_ * classes_) {
    const CtcScratch parts(args.logits, args.targets);
    const int64_t most_states = 2 * args.targets.shape[1] + 1;
    auto* const scratch = static_cast<std::byte*>(args.scratch.data);
    const auto sums_at = [&](int64_t part, int64_t elements) {  // elements of each sample
      return reinterpret_cast<Sum*>(scratch + part) + sample * elements;
    };
    alpha_ = sums_at(parts.alpha, steps_ * most_states);
    beta_ = sums_at(parts.beta, 2 * most_states);
    log_sums_ = sums_at(parts.log_sums, steps_);
    occupied_ = sums_at(parts.by_class, 2 * classes_);
    later_y_ = occupied_ + classes_;
    characters_ = characters_of(target, reinterpret_cast<int32_t*>(scratch + parts.states) + sample * most_states);
    for (int64_t t = 0; t < steps_; ++t) log_sums_[t] = log_sum_exp(logits_ + t * classes_);
    run_forward();
  }

  double loss() const { return -static_cast<double>(log_probability_); }

  // dlogits may be logits.
  void write_gradient(Sum scale, T* dlogits) const {
    if (log_probability_ == kImpossible<Sum>) {
      std::fill_n(dlogits, steps_ * classes_, T{});
      return;
    }
    std::fill_n(beta_, states(), kImpossible<Sum>);
    for (int64_t s = std::max<int64_t>(0, states() - 2); s < states(); ++s) beta_[s] = 0;
    for (int64_t t = steps_ - 1; t >= 0; --t) {
      if (t < steps_ - 1) step_back();
      std::fill_n(occupied_, classes_, Sum{0});
      for (int64_t s = 0; s < states(); ++s)
        occupied_[class_of(s)] += std::exp(alpha_[t * states() + s] + beta_[s] - log_probability_);
      for (int64_t k = 0; k < classes_; ++k) {
        later_y_[k] = y(t, k);
        dlogits[t * classes_ + k] = narrow<T>(scale * (std::exp(later_y_[k]) - occupied_[k]));
      }
    }
  }

  // Checks whether the most probable classes spell the target.
  bool spelled() const {
    size_t matched = 0;
    int64_t before = kBlank;
    for (int64_t t = 0; t < steps_; ++t) {
      const int64_t best = largest_of(logits_ + t * classes_);
      if (best != before && best != kBlank) {
        if (matched == characters_.size() || characters_[matched] != best) return false;
        ++matched;
      }
      before = best;
    }
    return matched == characters_.size();
  }

 private:
  int64_t states() const { return 2 * static_cast<int64_t>(characters_.size()) + 1; }
  int32_t class_of(int64_t state) const { return state % 2 == 0 ? kBlank : characters_[state / 2]; }
  // Checks whether a path may go from two states before to this one.
  bool may_skip_to(int64_t state) const { return state % 2 == 1 && state >= 3 && class_of(state) != class_of(state - 2); }
  Sum y(int64_t t, int64_t k) const { return widen<Sum>(logits_[t * classes_ + k]) - log_sums_[t]; }

  int64_t largest_of(const T* row) const {
    return std::max_element(row, row + classes_, [](T a, T b) { return widen<Sum>(a) < widen<Sum>(b); }) - row;
  }

  Sum log_sum_exp(const T* row) const {
    const Sum largest = widen<Sum>(row[largest_of(row)]);
    Sum sum{0};
    for (int64_t k = 0; k < classes_; ++k) sum += std::exp(widen<Sum>(row[k]) - largest);
    return largest + std::log(sum);
  }

  void run_forward() {
    std::fill_n(alpha_, states(), kImpossible<Sum>);
    for (int64_t s = 0; s < std::min<int64_t>(2, states()); ++s) alpha_[s] = y(0, class_of(s));
    for (int64_t t = 1; t < steps_; ++t) {
      const Sum* before = alpha_ + (t - 1) * states();
      for (int64_t s = 0; s < states(); ++s) {
        Sum sum = before[s];
        if (s >= 1) sum = log_add(sum, before[s - 1]);
        if (may_skip_to(s)) sum = log_add(sum, before[s - 2]);
        alpha_[t * states() + s] = sum + y(t, class_of(s));
      }
    }
    const Sum* last = alpha_ + (steps_ - 1) * states();
    log_probability_ = last[states() - 1];
    if (states() >= 2) log_probability_ = log_add(log_probability_, last[states() - 2]);
  }

  // beta[t + 1] becomes beta[t].
  void step_back() const {
    for (int64_t s = 0; s < states(); ++s) {
      Sum sum = beta_[s] + later_y_[class_of(s)];
      if (s + 1 < states()) sum = log_add(sum, beta_[s + 1] + later_y_[class_of(s + 1)]);
      if (s + 2 < states() && may_skip_to(s + 2)) sum = log_add(sum, beta_[s + 2] + later_y_[class_of(s + 2)]);
      beta_[s] = sum;
    }
  }

  int64_t steps_, classes_;
  const T* logits_;
  // In the scratch memory:
  std::span<const int32_t> characters_;
  Sum* log_sums_;  // [T], for the logits of each step
  Sum* alpha_;     // [T, S]
  Sum* beta_;      // [S]
  Sum* occupied_;  // [V]: the probability that a path is in a class at step t
  Sum* later_y_;   // [V]: y of the step after t, whose logits may have been overwritten
  Sum log_probability_ = 0;
};

double* results_of(const Ctc& args) {
  return reinterpret_cast<double*>(static_cast<std::byte*>(args.scratch.data) + CtcScratch(args.logits, args.targets).results);
}

template <typename T>
void run_sample(const Ctc& args, int64_t sample) {
  const int64_t steps = args.logits.shape[1], classes = args.logits.shape[2], places = args.targets.shape[1];
  const std::span target(args.targets.as<int32_t>() + sample * places, static_cast<size_t>(places));
  T* dlogits = args.dlogits.absent() ? nullptr : args.dlogits.as<T>() + sample * steps * classes;
  double* const result = results_of(args) + sample * kResults;
  std::fill_n(result, kResults, 0.0);
  if (!counts_sample(target)) {
    if (dlogits) std::fill_n(dlogits, steps * classes, T{});
    return;
  }
  const CtcSample<T> paths(args, sample, target);
  result[0] = paths.loss();
  result[1] = 1;
  result[2] = !args.correct.absent() && paths.spelled() ? 1 : 0;
  if (dlogits) paths.write_gradient(static_cast<SumOf<T>>(args.gradient_scale.value()), dlogits);
}

void check_characters(ConstTensorView targets, int64_t classes) {
  for (int64_t place = 0; place < targets.elements(); ++place)
    if (targets.as<int32_t>()[place] >= classes)
      throw std::out_of_range("ctc: target " + std::to_string(targets.as<int32_t>()[place]) + " of sample " +
                              std::to_string(place / targets.shape[1]) + " must be below the number of classes " +
                              std::to_string(classes));
}

void add_results(const Ctc& args) {
  const double* const results = results_of(args);
  double sums[kResults] = {};
  for (int64_t i = 0; i < args.logits.shape[0] * kResults; ++i) sums[i % kResults] += results[i];
  if (!args.loss.absent()) {
    args.loss.as<double>()[0] += sums[0];
    args.loss.as<double>()[1] += sums[1];
  }
  if (!args.correct.absent()) args.correct.as<double>()[0] += sums[2];
}

}  // namespace

void compute(const Ctc& args, int threads) {
  check_characters(args.targets, args.logits.shape[2]);
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    for_each_piece(args.logits.shape[0], threads, [&](int64_t sample) { run_sample<T>(args, sample); });
  });
  add_results(args);
}

}  // namespace trivet::kernels::cpu
