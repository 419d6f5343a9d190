// Mixtures of experts: which experts compute a token, the order of their rows, products with each expert's own weights.
//
// T tokens, E experts, K of them for each token, H hidden, F feed-forward of an expert. A choice is one of the T K pairs of a
// token and an expert; choice t K + k is the k-th of token t, and the choices of a token are in ascending order of experts.
// Each choice is a row of the experts' work. Rows are ordered by expert, and those of an expert by token:
//
//   chosen  token 0: 0 2   token 1: 1 2   token 2: 0 1        choices 0 .. 5
//   order   0 4 | 2 5 | 1 3      the choice of each row       ends 2 4 6
//   places  0 4   2 5   1 3      the row of each choice
//
// How many rows an expert has follows from the data, but all of them together are T K, so that sizes are known beforehand and
// nobody waits for a count: kernels read the ends on their device. An expert without rows costs nothing, and its gradient is 0.
// The bits of a row do not depend on which other rows there are, nor on how many: experts see as many rows as routers decide.
#pragma once

#include <cstdint>
#include <vector>

#include "core/enum_names.h"
#include "core/number.h"
#include "kernels/products.h"

namespace trivet::kernels {

enum class ExpertScore : uint8_t { Softmax, Sigmoid };

// How a token's logits z[E] become the experts that it is given to and their weights.
//
//   score    p = softmax(z) (Shazeer et al. 2017, Fedus et al. 2021) or sigmoid(z) (DeepSeek-AI 2024, 2412.19437)
//   choice   the K largest of c = p + bias; of equal ones those of lower experts. With groups, experts are divided evenly, and
//            only those of `groups_per_token` groups take part: those with the largest sums of their two largest c, of
//            equal ones the lower
//   weights  p of the chosen, not c; with `normalize` divided by their sum; times `scale`
//
// The sum of sigmoids gets 1e-20 first, as DeepSeek does. Everything is computed in float32 (float64 if the logits are).
struct ExpertRule {
  ExpertScore score = ExpertScore::Softmax;
  bool normalize = true;
  double scale = 1;
  int64_t groups = 1, groups_per_token = 1;

  bool operator==(const ExpertRule&) const = default;
};

// See ExpertRule. A logit that is NaN counts as the smallest; if it is chosen all the same, its weight is NaN.
struct ChooseExperts {
  ConstTensorView logits;  // float32 or float64 [T, E]
  ConstTensorView bias;    // optional, of the logits' type [E]
  TensorView chosen;       // int32 [T, K], ascending in each row
  TensorView weights;      // of the logits' type [T, K]
  ExpertRule rule;

  void check() const;
  KernelCall describe() const;
};

// What the weights' gradients, and two losses of a microbatch, are for the logits. A choice itself has no gradient.
//
//   balance   coefficient E / (K N) sum over e of count[e] P[e], where N tokens of the microbatch have chosen expert e count[e]
//             times, and P[e] is the sum of their p[e] (of p / sum of p with sigmoids): N times the loss of Fedus et al. 2021
//   z_loss    coefficient sum over tokens of logsumexp(z)^2: N times that of Zoph et al. 2022
//
// Both are sums over the tokens whose targets count, as the loss of the model is. Counts are constants of the microbatch.
struct ChooseExpertsBackward {
  ConstTensorView logits;    // float32 or float64 [T, E]
  ConstTensorView chosen;    // int32 [T, K]
  ConstTensorView dweights;  // of the logits' type [T, K]
  ConstTensorView counts;    // int64 [E + 1], those of CountChoices for the microbatch; absent: no balance loss
  ConstTensorView targets;   // int32 [T], less than 0: does not count; absent: all count
  TensorView dlogits;        // floating-point [T, E]
  ExpertRule rule;
  double balance = 0, z_loss = 0;  // coefficients
  Number gradient_scale = 1.0;     // the losses' gradients are multiplied by it; dweights have it already

  void check() const;
  KernelCall describe() const;
};

// counts[e] = how often tokens whose targets count have chosen expert e, and counts[E] = how many tokens these are
struct CountChoices {
  ConstTensorView chosen;   // int32 [T, K], each from 0 to E - 1
  ConstTensorView targets;  // int32 [T], less than 0: does not count; absent: all count
  TensorView counts;        // int64 [E + 1]

  void check() const;
  KernelCall describe() const;
};

// Orders choices by expert. `ranges` are ranges of tokens that do not overlap and cover all; the rows of an expert are in the
// order of ranges, and in a range in that of tokens. ends[e, r] is the end of the rows of expert e in range r.
struct OrderByExpert {
  ConstTensorView chosen;  // int32 [T, K], each from 0 to E - 1
  TensorView order;        // int32 [T K]
  TensorView places;       // int32 [T, K]
  TensorView ends;         // int32 [E, ranges]
  std::vector<ProductCuts::Range> ranges;

  void check() const;
  KernelCall describe() const;
};

// counts[e] (+)= how often expert e was chosen
struct CountRows {
  ConstTensorView ends;  // int32 [E, ranges]
  TensorView counts;     // int64 [E]
  bool accumulate = false;

  void check() const;
  KernelCall describe() const;
};

// out[i] = x[order[i] / K]
struct GatherRows {
  ConstTensorView x;      // [T, H]
  ConstTensorView order;  // int32 [T K]
  TensorView out;         // [T K, H]

  void check() const;
  KernelCall describe() const;
};

// out[t] = sum over k of x[places[t, k]], in ascending order of k, rounded once
struct CombineRows {
  ConstTensorView x;       // [T K, H]; the type of out or float32
  ConstTensorView places;  // int32 [T, K]
  TensorView out;          // [T, H]

  void check() const;
  KernelCall describe() const;
};

// A SwiGLU with limits, as gpt-oss has it: g sigmoid(alpha g) (u + offset) of g = min(gate, limit) and u = up within
// [-limit, limit]. Beyond a limit the gradient is 0. By default it is the usual silu(gate) up.
struct SwiGluRule {
  double limit = 0;  // 0: none
  double alpha = 1, offset = 0;

  bool usual() const { return limit == 0 && alpha == 1 && offset == 0; }
  bool operator==(const SwiGluRule&) const = default;
};

// y[i] = weights[order[i]] silu(gate[i]) up[i] with gate_up[i] = [gate | up], or another rule
struct WeightedSwiGlu {
  ConstTensorView gate_up;  // [T K, 2F]
  ConstTensorView weights;  // float32 (float64) [T, K]
  ConstTensorView order;    // int32 [T K]
  TensorView y;             // [T K, F]
  SwiGluRule rule = {};

  void check() const;
  KernelCall describe() const;
};

// dweights[order[i]] = dy[i] . (silu(gate[i]) up[i]), which is added up over the chunks of F that end at `ends` in a balanced
// tree (their number is a power of two; none: one chunk).
struct WeightedSwiGluBackward {
  ConstTensorView dy, gate_up;  // [T K, F], [T K, 2F]
  ConstTensorView weights;      // float32 (float64) [T, K]
  ConstTensorView order;        // int32 [T K]
  TensorView dgate_up;          // [T K, 2F]
  TensorView dweights;          // float32 (float64) [T, K]
  std::vector<int64_t> ends;
  SwiGluRule rule = {};

  void check() const;
  KernelCall describe() const;
};

// out[i] += bias[e] for the expert e of row i
struct AddExpertBias {
  ConstTensorView bias;  // [E, N]
  ConstTensorView ends;  // int32 [E, ranges]
  TensorView out;        // [T K, N], of the type of bias

  void check() const;
  KernelCall describe() const;
};

// The weights of choices among all experts: out[t, chosen[t, k]] = weights[t, k], and 0 for the others.
struct SpreadWeights {
  ConstTensorView weights;  // float32 (float64) [T, K]
  ConstTensorView chosen;   // int32 [T, K]
  TensorView out;           // [T, E]

  void check() const;
  KernelCall describe() const;
};

// The other direction: out[t, k] += x[t, chosen[t, k]]
struct AddChosen {
  ConstTensorView x;       // [T, E]
  ConstTensorView chosen;  // int32 [T, K]
  TensorView out;          // float32 (float64) [T, K]

  void check() const;
  KernelCall describe() const;
};

// out[i] (+)= a[i] op(b[e]) for the expert e of row i. op transposes if transpose_b is set: then b is [E, N, K], and [E, K, N]
// otherwise. Its cuts (kernels/products.h) may have col_ends and leaves.
struct GroupedMatmul {
  ConstTensorView a;     // [T K, K]
  ConstTensorView b;     // [E, ...]
  ConstTensorView ends;  // int32 [E, ranges]
  TensorView out;        // [T K, N], of the type of a or float32
  bool transpose_b = false;
  bool accumulate = false;
  const ProductCuts* cuts = nullptr;

  void check() const;
  KernelCall describe() const;
};

// out[e] (+)= sum over the rows i of expert e of a[i]^T b[i]. The sum adds up the ranges of each leaf in their order, and then
// the leaves in a balanced tree, as a Matmul with leaves does: leaf l of `leaves`, a power of two, has the ranges
// [l R / leaves, (l + 1) R / leaves) of the R ranges that `ends` has. Its cuts may have row_ends and col_ends. A rank whose
// only leaf is one of several must have cuts, be they empty: one range without cuts is summed in whatever way is fastest.
struct GroupedGradient {
  ConstTensorView a, b;  // [T K, M], [T K, N]
  ConstTensorView ends;  // int32 [E, R]
  int64_t leaves = 1;
  TensorView out;  // [E, M, N], of the type of a or float32
  bool accumulate = false;
  const ProductCuts* cuts = nullptr;

  void check() const;
  KernelCall describe() const;
};

// y[t] += sigmoid(logits[t]) x[t]: the output of a shared expert, and its gate (Qwen2-MoE).
struct AddGated {
  ConstTensorView x;       // [T, H]
  ConstTensorView logits;  // float32 (float64) [T, 1]
  TensorView y;            // [T, H]

  void check() const;
  KernelCall describe() const;
};

// dx[t] = sigmoid(logits[t]) dy[t], and dlogits[t] = sigmoid'(logits[t]) (dy[t] . x[t])
struct AddGatedBackward {
  ConstTensorView dy, x;   // [T, H]
  ConstTensorView logits;  // float32 (float64) [T, 1]
  TensorView dx;           // [T, H]
  TensorView dlogits;      // [T, 1], of the same type as x

  void check() const;
  KernelCall describe() const;
};

// bias[i] += rate sign(mean of counts - counts[first + i]), unless the verdict says that the step is skipped
// (kernels/verdict.h): balance without a loss (Wang et al. 2024, 2408.15664). The mean is compared in integers.
struct BalanceExperts {
  TensorView bias;          // float32 [n], of the experts from `first` on
  ConstTensorView counts;   // int64 [E]
  ConstTensorView verdict;  // optional
  int64_t first = 0;
  double rate = 0.001;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels

template <>
struct trivet::EnumNames<trivet::kernels::ExpertScore> {
  static constexpr std::array<std::pair<std::string_view, trivet::kernels::ExpertScore>, 2> table{
      {{"softmax", trivet::kernels::ExpertScore::Softmax}, {"sigmoid", trivet::kernels::ExpertScore::Sigmoid}}};
};
