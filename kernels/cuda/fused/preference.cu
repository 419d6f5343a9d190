// The loss of pairs of answers (kernels/preference.h). One block does all pairs, one after another, so that they are added in
// order: what it reads is a number for each token, of which there are few compared with logits.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/preference.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kPairThreads = 256;

struct Pairs {
  const double* losses;                // may be the factors
  const int32_t *targets, *documents;  // without documents, null: an answer has a row
  const double* reference;
  int64_t rows, length;
  PreferenceRule rule;
  double *factors, *log_probabilities, *loss, *correct, *rewards;  // each may be null
};

// An answer with its prompt begins at token `first` of a row.
struct Start {
  int64_t row, first;
};

struct Answer {
  double log_probability, tokens;
  int64_t places;  // tokens with those of its prompt; 0 after the last answer of a row
};

// All threads get the sums. They do not depend on where in the row the answer begins.
__device__ Answer answer_of(const Pairs& a, const Start& start) {
  double sum = 0, tokens = 0;
  int places = 0;
  const int64_t row = start.row * a.length;
  for (int64_t t = start.first + threadIdx.x; t < a.length; t += kPairThreads) {
    if (a.documents != nullptr && a.documents[row + t] != start.first) break;
    places += 1;
    if (a.targets[row + t] < 0) continue;
    sum -= a.losses[row + t];
    tokens += 1;
  }
  return {join_group<kPairThreads>(sum, Plus()), join_group<kPairThreads>(tokens, Plus()),
          join_group<kPairThreads>(places, Plus())};
}

// Returns the place of the answer among the references.
__device__ int64_t place_of(const Pairs& a, const Start& start) {
  return a.documents == nullptr ? start.row : start.row * a.length + start.first;
}

__device__ void fill_factors(const Pairs& a, const Start& start, int64_t places, double factor) {
  if (a.factors == nullptr) return;
  double* const factors = a.factors + start.row * a.length + start.first;
  for (int64_t t = threadIdx.x; t < places; t += kPairThreads) factors[t] = factor;
}

__device__ void add(double* to, double value) {
  if (to != nullptr) *to += value;
}

__device__ void compare(const Pairs& a, const Start& preferred, const Answer& chosen, const Start& other,
                        const Answer& rejected) {
  const int64_t place = place_of(a, preferred), other_place = place_of(a, other);
  const bool counts = chosen.tokens > 0 && rejected.tokens > 0;
  const AnswerRatio better{chosen.log_probability - a.reference[place], chosen.tokens};
  const AnswerRatio worse{rejected.log_probability - a.reference[other_place], rejected.tokens};
  const PairLoss pair = counts ? loss_of_pair(a.rule, better, worse) : PairLoss{};
  fill_factors(a, preferred, chosen.places, pair.chosen_factor);
  fill_factors(a, other, rejected.places, pair.rejected_factor);
  if (threadIdx.x != 0) return;
  if (a.log_probabilities != nullptr) {
    a.log_probabilities[place] = chosen.log_probability;
    a.log_probabilities[other_place] = rejected.log_probability;
  }
  if (!counts) return;
  add(a.loss, pair.loss);
  add(a.loss == nullptr ? nullptr : a.loss + 1, 1);
  add(a.correct, better.ratio > worse.ratio ? 1 : 0);
  add(a.rewards, a.rule.beta * better.ratio);
  add(a.rewards == nullptr ? nullptr : a.rewards + 1, a.rule.beta * worse.ratio);
}

__global__ void __launch_bounds__(kPairThreads) compare_pairs(Pairs a) {
  for (int64_t row = 0; row < a.rows; row += 2) {
    Start preferred{row, 0}, other{row + 1, 0};
    while (preferred.first < a.length && other.first < a.length) {
      const Answer chosen = answer_of(a, preferred), rejected = answer_of(a, other);
      if (chosen.places == 0 || rejected.places == 0) break;
      compare(a, preferred, chosen, other, rejected);
      preferred.first += chosen.places;
      other.first += rejected.places;
    }
    fill_factors(a, preferred, a.length - preferred.first, 0);  // padding
    fill_factors(a, other, a.length - other.first, 0);
  }
}

}  // namespace

void compute(const PreferenceLoss& args, const Launch& launch) {
  if (args.targets.elements() == 0) return;
  Pairs pairs{};
  pairs.losses = data_of<double>(args.row_losses);
  pairs.targets = data_of<int32_t>(args.targets);
  pairs.documents = data_of<int32_t>(args.documents);
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
