// Cross-entropy, whose columns ranks may share, and what a step decides from losses and gradients.
#pragma once

#include <span>

#include "core/exact_sum.h"
#include "core/number.h"
#include "kernels/embedding.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// Row-wise softmax cross-entropy. loss[0] += the sum of the losses of all rows whose target is >= 0, in a fixed order; loss[1]
// += the number of these rows. If dlogits is present: dlogits = (softmax(logits) - onehot) * gradient_scale, and 0 for rows
// that do not count. dlogits may be logits.
struct CrossEntropy {
  ConstTensorView logits;   // [T, V], float32 or the activations' dtype
  ConstTensorView targets;  // int32 [T]
  TensorView dlogits;       // optional [T, V], any float dtype
  Number gradient_scale = 1.0;
  // Optional: a row's exponentials are summed in chunks that end at these columns. Each chunk's sum is rounded to float32
  // (float64), and a balanced tree adds them up (see ProductCuts).
  std::span<const int64_t> chunk_ends;
  TensorView loss;              // optional float64 [2]
  TensorView row_losses;        // optional float64 [T]: the loss of each row, 0 if it does not count
  ConstTensorView row_factors;  // optional float64 [T]: the gradient of a row is multiplied by its factor
  // 0, or the logits are those of SoftCap with this cap. Then dlogits is the gradient of what SoftCap read.
  double soft_cap = 0;

  void check() const;
  KernelCall describe() const;
};

// Cross-entropy of rows whose columns are split among ranks; `logits` is the part that starts at columns.first. This takes the
// maximum over all parts, then sums over all parts, then loss and gradient. Statistics are float32 (float64).
//
//   row_maxima -> maximum[T] --max over parts--> row_sums -> sums[2, T] --sum over parts--> cross_entropy_of_part
struct RowMaxima {
  ConstTensorView logits;
  TensorView maximum;

  void check() const;
  KernelCall describe() const;
};

// sums[0] = sum over columns of exp(logits - maximum); sums[1] = the target's logit, or 0 if another part has it.
struct RowSums {
  ConstTensorView logits, targets, maximum;
  TensorView sums;
  TableRows columns;
  std::span<const int64_t> chunk_ends;  // as in CrossEntropy

  void check() const;
  KernelCall describe() const;
};

struct CrossEntropyOfPart {
  ConstTensorView logits, targets, maximum, sums;  // maximum and sums: over whole rows
  TensorView dlogits;                              // optional, for this part; may be logits
  TableRows columns;
  Number gradient_scale = 1.0;
  TensorView loss;              // optional float64 [2], as in CrossEntropy
  TensorView row_losses;        // optional float64 [T], likewise
  ConstTensorView row_factors;  // optional float64 [T], likewise
  double soft_cap = 0;          // likewise

  void check() const;
  KernelCall describe() const;
};

// After the sum of a microbatch's losses: its targets that count, and those that the model got right.
inline constexpr int kLossCounts = 2;

// correct += the number of rows whose target is >= 0 and has the largest logit of the row; the first one of several that are
// equally large.
struct CountCorrect {
  ConstTensorView logits;   // [T, V]
  ConstTensorView targets;  // int32 [T]
  TensorView correct;       // float64 [1]

  void check() const;
  KernelCall describe() const;
};

// Adds up the losses of microbatches exactly: words[0 .. kWords) += losses[m][0], and words[kWords + i] += losses[m][1 + i] for
// the two counts. Each of F further numbers has kWords words after them, and is added up like the loss.
struct SumLosses {
  ConstTensorView
      losses;        // float64 [M, 3 + F]: of CrossEntropy, then of CountCorrect; F = 2 with the rewards of PreferenceLoss
  TensorView words;  // int64 [loss_words(F)]

  static constexpr int64_t loss_words(int64_t further) { return (1 + further) * ExactSum::kWords + kLossCounts; }
  int64_t further() const { return losses.shape.cols() - 1 - kLossCounts; }

  void check() const;
  KernelCall describe() const;
};

// Decides from the gradients of all ranks how an update is scaled and whether it is applied. T = words[kWords] of `losses` is
// the number of targets, and the gradient of the mean loss is the stored sum of gradients x unit / T:
//
//   norm = sqrt(square_sum) x unit / T    apply = 1, or 0 if T = 0, or if check_finite and the sum is not finite
//   factor = unit / T x min(1, clipping / (norm + 1e-6))     (as PyTorch's clip_grad_norm_; clipping 0: off)
//
// In a step without targets, norm and factor have T = 1; it is not applied, because weight decay would move the weights.
struct JudgeGradients {
  ConstTensorView square_sum;  // int64 [ExactSum::kWords], from the stored gradients
  ConstTensorView losses;      // int64 [ExactSum::kWords + 1]
  TensorView verdict;          // float64 [3]: norm (NaN when not finite), factor, apply
  double unit = 1, clipping = 0;
  bool check_finite = true;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
