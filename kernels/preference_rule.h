// Turns a pair of answers to one prompt into a loss: direct preference optimization. Shared by all devices.
//
// The ratio of an answer is log p(answer | prompt) - log p_reference(answer | prompt), with the log-probabilities of all of its
// tokens added up. c, r: ratios of the preferred (chosen) and the rejected answer; m = beta (c - r)
//
//   sigmoid   -log sigmoid(m)                                            Rafailov et al. 2023
//   hinge     max(0, 1 - m)                                              Zhao et al. 2023
//   ipo       (c / tokens of c - r / tokens of r - 1 / (2 beta))^2       Azar et al. 2023, by token as its authors say
//   robust    (-(1 - e) log sigmoid(m) + e log sigmoid(-m)) / (1 - 2 e)  Chowdhury et al. 2024; e: label smoothing
//
// beta c and beta r are called rewards. The gradient of the logits of an answer is that of its cross-entropy times a factor:
// the derivative of the loss by minus the log-probability of the answer.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/enum_names.h"
#include "core/host_device.h"

namespace trivet::kernels {

enum class PreferenceLossType : uint8_t { Sigmoid, Hinge, Ipo, Robust };

struct PreferenceRule {
  PreferenceLossType loss_type = PreferenceLossType::Sigmoid;
  double beta = 0.1;
  double label_smoothing = 0;  // Robust: the probability that the labels of a pair are swapped; below 0.5

  bool operator==(const PreferenceRule&) const = default;
};

struct AnswerRatio {
  double ratio = 0;
  double tokens = 0;  // tokens that count
};

struct PairLoss {
  double loss = 0;
  double chosen_factor = 0, rejected_factor = 0;
};

TRIVET_HOST_DEVICE inline double log_sigmoid(double x) { return (x < 0 ? x : 0) - log1p(exp(x < 0 ? x : -x)); }
TRIVET_HOST_DEVICE inline double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

TRIVET_HOST_DEVICE inline PairLoss loss_of_pair(const PreferenceRule& rule, const AnswerRatio& chosen,
                                                const AnswerRatio& rejected) {
  if (rule.loss_type == PreferenceLossType::Ipo) {
    const double distance = chosen.ratio / chosen.tokens - rejected.ratio / rejected.tokens - 1 / (2 * rule.beta);
    return {distance * distance, -2 * distance / chosen.tokens, 2 * distance / rejected.tokens};
  }
  const double margin = rule.beta * (chosen.ratio - rejected.ratio);
  double loss = 0, slope = 0;  // slope: minus the derivative of the loss by the margin
  switch (rule.loss_type) {
    case PreferenceLossType::Sigmoid:
      loss = -log_sigmoid(margin);
      slope = sigmoid(-margin);
      break;
    case PreferenceLossType::Hinge:
      loss = margin < 1 ? 1 - margin : 0;
      slope = margin < 1 ? 1 : 0;
      break;
    case PreferenceLossType::Robust: {
      const double swapped = rule.label_smoothing, scale = 1 - 2 * swapped;
      loss = (-(1 - swapped) * log_sigmoid(margin) + swapped * log_sigmoid(-margin)) / scale;
      slope = ((1 - swapped) * sigmoid(-margin) + swapped * sigmoid(margin)) / scale;
      break;
    }
    case PreferenceLossType::Ipo: break;  // above
  }
  // A margin that is not a number must not look like a pair without a loss.
  if (margin != margin) loss = slope = margin;
  return {loss, rule.beta * slope, -rule.beta * slope};
}

}  // namespace trivet::kernels

template <>
struct trivet::EnumNames<trivet::kernels::PreferenceLossType> {
  static constexpr std::array<std::pair<std::string_view, kernels::PreferenceLossType>, 4> table{
      {{"sigmoid", kernels::PreferenceLossType::Sigmoid},
       {"hinge", kernels::PreferenceLossType::Hinge},
       {"ipo", kernels::PreferenceLossType::Ipo},
       {"robust", kernels::PreferenceLossType::Robust}}};
};
