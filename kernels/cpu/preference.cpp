// The loss of pairs of answers (kernels/preference.h): a few sums over rows, one after another.
#include "kernels/preference.h"

#include <algorithm>

#include "kernels/cpu/math.h"

namespace trivet::kernels::cpu {
namespace {

struct Answer {
  double log_probability = 0, tokens = 0;
};

Answer answer_of(const PreferenceLoss& args, int64_t row) {
  const int64_t length = args.targets.shape[1];
  const double* losses = args.row_losses.as<double>() + row * length;
  const int32_t* targets = args.targets.as<int32_t>() + row * length;
  Answer answer;
  for (int64_t t = 0; t < length; ++t) {
    if (targets[t] < 0) continue;
    answer.log_probability -= losses[t];
    answer.tokens += 1;
  }
  return answer;
}

void add(TensorView to, int64_t index, double value) {
  if (!to.absent()) to.as<double>()[index] += value;
}

}  // namespace

void compute(const PreferenceLoss& args, int) {
  const int64_t rows = args.targets.shape[0], length = args.targets.shape[1];
  const double* reference = args.reference.as<double>();
  for (int64_t row = 0; row < rows; row += 2) {
    const Answer chosen = answer_of(args, row), rejected = answer_of(args, row + 1);
    const bool counts = chosen.tokens > 0 && rejected.tokens > 0;
    const AnswerRatio better{chosen.log_probability - reference[row], chosen.tokens};
    const AnswerRatio worse{rejected.log_probability - reference[row + 1], rejected.tokens};
    const PairLoss pair = counts ? loss_of_pair(args.rule, better, worse) : PairLoss{};
    if (!args.log_probabilities.absent()) {
      args.log_probabilities.as<double>()[row] = chosen.log_probability;
      args.log_probabilities.as<double>()[row + 1] = rejected.log_probability;
    }
    if (!args.factors.absent()) {
      double* factors = args.factors.as<double>() + row * length;
      std::fill_n(factors, length, pair.chosen_factor);
      std::fill_n(factors + length, length, pair.rejected_factor);
    }
    if (!counts) continue;
    add(args.loss, 0, pair.loss);
    add(args.loss, 1, 1);
    add(args.correct, 0, better.ratio > worse.ratio ? 1 : 0);
    add(args.rewards, 0, args.rule.beta * better.ratio);
    add(args.rewards, 1, args.rule.beta * worse.ratio);
  }
}

}  // namespace trivet::kernels::cpu
