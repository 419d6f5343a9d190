// The loss of pairs of answers (kernels/preference.h): a few sums over documents, one after another.
#include "kernels/preference.h"

#include <algorithm>

#include "kernels/cpu/math.h"

namespace trivet::kernels::cpu {
namespace {

// An answer with its prompt: a row, or a document of it. Empty after the last one of a row.
struct Document {
  int64_t row = 0, first = 0, end = 0;  // tokens of the row
  bool empty() const { return first == end; }
};

Document document_at(const PreferenceLoss& args, int64_t row, int64_t first) {
  const int64_t length = args.targets.shape[1];
  if (args.documents.absent()) return {row, first, length};
  const int32_t* firsts = args.documents.as<int32_t>() + row * length;
  return {row, first, std::find_if(firsts + first, firsts + length, [=](int32_t of) { return of != first; }) - firsts};
}

struct Answer {
  double log_probability = 0, tokens = 0;
};

Answer answer_of(const PreferenceLoss& args, const Document& document) {
  const int64_t length = args.targets.shape[1];
  const double* losses = args.row_losses.as<double>() + document.row * length;
  const int32_t* targets = args.targets.as<int32_t>() + document.row * length;
  Answer answer;
  for (int64_t t = document.first; t < document.end; ++t) {
    if (targets[t] < 0) continue;
    answer.log_probability -= losses[t];
    answer.tokens += 1;
  }
  return answer;
}

// The place of the answer among the references.
int64_t place_of(const PreferenceLoss& args, const Document& document) {
  return args.documents.absent() ? document.row : document.row * args.targets.shape[1] + document.first;
}

void fill_factors(const PreferenceLoss& args, const Document& document, double factor) {
  if (args.factors.absent()) return;
  double* factors = args.factors.as<double>() + document.row * args.targets.shape[1];
  std::fill(factors + document.first, factors + document.end, factor);
}

void add(TensorView to, int64_t index, double value) {
  if (!to.absent()) to.as<double>()[index] += value;
}

void compare(const PreferenceLoss& args, const Document& preferred, const Document& other) {
  const Answer chosen = answer_of(args, preferred), rejected = answer_of(args, other);
  const int64_t place = place_of(args, preferred), other_place = place_of(args, other);
  const double* reference = args.reference.as<double>();
  const bool counts = chosen.tokens > 0 && rejected.tokens > 0;
  const AnswerRatio better{chosen.log_probability - reference[place], chosen.tokens};
  const AnswerRatio worse{rejected.log_probability - reference[other_place], rejected.tokens};
  const PairLoss pair = counts ? loss_of_pair(args.rule, better, worse) : PairLoss{};
  if (!args.log_probabilities.absent()) {
    args.log_probabilities.as<double>()[place] = chosen.log_probability;
    args.log_probabilities.as<double>()[other_place] = rejected.log_probability;
  }
  fill_factors(args, preferred, pair.chosen_factor);
  fill_factors(args, other, pair.rejected_factor);
  if (!counts) return;
  add(args.loss, 0, pair.loss);
  add(args.loss, 1, 1);
  add(args.correct, 0, better.ratio > worse.ratio ? 1 : 0);
  add(args.rewards, 0, args.rule.beta * better.ratio);
  add(args.rewards, 1, args.rule.beta * worse.ratio);
}

}  // namespace

void compute(const PreferenceLoss& args, int) {
  const int64_t rows = args.targets.shape[0], length = args.targets.shape[1];
  for (int64_t row = 0; row < rows; row += 2) {
    Document preferred = document_at(args, row, 0), other = document_at(args, row + 1, 0);
    while (!preferred.empty() && !other.empty()) {
      compare(args, preferred, other);
      preferred = document_at(args, row, preferred.end);
      other = document_at(args, row + 1, other.end);
    }
    for (const Document& rest : {preferred, other}) fill_factors(args, {rest.row, rest.first, length}, 0);  // padding
  }
}

}  // namespace trivet::kernels::cpu
