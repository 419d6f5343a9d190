// The loss of pairs of answers (kernels/preference.h). One block does all pairs, one after another, so that they are added in
// order: what it reads is a number for each token, of which there are few compared with logits.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/preference.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kPairThreads = 256;

struct Pairs {
  const double* losses;  // may be the factors
  const int32_t* targets;
  const double* reference;
  int64_t rows, length;
  PreferenceRule rule;
  double *factors, *log_probabilities, *loss, *correct, *rewards;  // each may be null
};

struct Answer {
  double log_probability, tokens;
};

// All threads get the sums.
__device__ Answer answer_of(const Pairs& a, int64_t row) {
  double sum = 0, tokens = 0;
  for (int64_t t = threadIdx.x; t < a.length; t += kPairThreads) {
    if (a.targets[row * a.length + t] < 0) continue;
    sum -= a.losses[row * a.length + t];
    tokens += 1;
  }
  return {join_group<kPairThreads>(sum, Plus()), join_group<kPairThreads>(tokens, Plus())};
}

__device__ void fill_factors(const Pairs& a, int64_t row, double factor) {
  for (int64_t t = threadIdx.x; t < a.length; t += kPairThreads) a.factors[row * a.length + t] = factor;
}

__device__ void add(double* to, double value) {
  if (to != nullptr) *to += value;
}

__global__ void __launch_bounds__(kPairThreads) compare_pairs(Pairs a) {
  for (int64_t row = 0; row < a.rows; row += 2) {
    const Answer chosen = answer_of(a, row), rejected = answer_of(a, row + 1);
    const bool counts = chosen.tokens > 0 && rejected.tokens > 0;
    const AnswerRatio better{chosen.log_probability - a.reference[row], chosen.tokens};
    const AnswerRatio worse{rejected.log_probability - a.reference[row + 1], rejected.tokens};
    const PairLoss pair = counts ? loss_of_pair(a.rule, better, worse) : PairLoss{};
    if (a.factors != nullptr) {
      fill_factors(a, row, pair.chosen_factor);
      fill_factors(a, row + 1, pair.rejected_factor);
    }
    if (threadIdx.x != 0) continue;
    if (a.log_probabilities != nullptr) {
      a.log_probabilities[row] = chosen.log_probability;
      a.log_probabilities[row + 1] = rejected.log_probability;
    }
    if (!counts) continue;
    add(a.loss, pair.loss);
    add(a.loss == nullptr ? nullptr : a.loss + 1, 1);
    add(a.correct, better.ratio > worse.ratio ? 1 : 0);
    add(a.rewards, a.rule.beta * better.ratio);
    add(a.rewards == nullptr ? nullptr : a.rewards + 1, a.rule.beta * worse.ratio);
  }
}

}  // namespace

void compute(const PreferenceLoss& args, const Launch& launch) {
  if (args.targets.elements() == 0) return;
  Pairs pairs{};
  pairs.losses = data_of<double>(args.row_losses);
  pairs.targets = data_of<int32_t>(args.targets);
  pairs.reference = data_of<double>(args.reference);
  pairs.rows = args.targets.shape[0];
  pairs.length = args.targets.shape[1];
  pairs.rule = args.rule;
  pairs.factors = data_of<double>(args.factors);
  pairs.log_probabilities = data_of<double>(args.log_probabilities);
  pairs.loss = data_of<double>(args.loss);
  pairs.correct = data_of<double>(args.correct);
  pairs.rewards = data_of<double>(args.rewards);
  TRIVET_LAUNCH(&compare_pairs, 1, kPairThreads, 0, launch.stream, pairs);
}

}  // namespace trivet::kernels::cuda
