// The loss of pairs of answers, of which one is preferred (kernels/preference_rule.h).
//
//   logits --cross_entropy--> row_losses --preference_loss--> factors --cross_entropy--> dlogits
//
// P pairs of rows, S tokens per row. Row 2 p is the preferred answer of pair p with its prompt, row 2 p + 1 the rejected one.
// With documents, a row is several answers with their prompts, and document k of row 2 p is preferred to document k of row
// 2 p + 1. Sums are made document by document, so that a pair has the bits that it has in rows of its own.
#pragma once

#include "core/tensor_view.h"
#include "kernels/kernel_call.h"
#include "kernels/preference_rule.h"

namespace trivet::kernels {

// loss[0] += the sum of the losses of all pairs, in a fixed order; loss[1] += the number of pairs. correct[0] += the number of
// pairs in which the preferred answer has the higher reward; rewards[0] and [1] += the sums of the rewards of preferred and of
// rejected answers. A pair of which an answer has no target that counts does not count, and its factors are 0.
struct PreferenceLoss {
  ConstTensorView
      row_losses;  // float64 [2 P, S], of CrossEntropy: minus the log-probability of each target, 0 if it does not count
  ConstTensorView targets;    // int32 [2 P, S]
  ConstTensorView documents;  // optional int32 [2 P, S]: the first token of each token's document (kernels/attention.h)
  // Log-probabilities of the answers in the reference model: float64 [2 P], or with documents [2 P, S], of which the first
  // tokens of documents are read.
  ConstTensorView reference;
  PreferenceRule rule;
  TensorView factors;            // optional float64 [2 P, S]: of the gradient of each token; may be row_losses
  TensorView log_probabilities;  // optional, as `reference`: one for each answer
  TensorView loss;               // optional float64 [2]
  TensorView correct;            // optional float64 [1]
  TensorView rewards;            // optional float64 [2]

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
