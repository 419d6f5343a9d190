// What the experts of a rank do with rows that were given to them, for model/expert_mlp.h: rows are ordered by expert
// (kernels/experts.h), E experts of the rank, F its part of their width.
#pragma once

#include "core/layer.h"
#include "kernels/experts.h"
#include "tensor_parallel/axis_sum.h"

namespace trivet::model {

// Rows of tokens, [rows, H], the ends of each expert's, and the weight of each row: that of choice order[row].
struct ExpertRows {
  ConstTensorView x, ends, weights, order;
  int64_t leaves = 1;  // of sums over the rows (kernels::GroupedGradient)
};

class ExpertWork {
 public:
  // `gate_up` [E 2F, H], perhaps with a bias [E 2F], and `down` [E H, F]; the whole width of an expert is `feed_forward`.
  struct Weights {
    ConstTensorView gate_up, gate_up_bias, down;
  };
  ExpertWork(Context& context, const Weights& weights, int64_t feed_forward, const kernels::SwiGluRule& rule);

  int64_t width() const { return down_.shape[2]; }  // F

  // wide[rows, 2F], activated[rows, F]
  void activate(const ExpertRows& rows, TensorView wide, TensorView activated) const;
  // out[rows, H], which tensor ranks add up
  void apply_down(ConstTensorView activated, ConstTensorView ends, TensorView out) const;

  // The gradients of gate and up, and of weights by choice, which tensor ranks add up. `scratch` is like `activated`.
  void backward(const ExpertRows& rows, ConstTensorView dy, ConstTensorView wide, TensorView scratch, TensorView dwide,
                TensorView dweights) const;
  // That of x, which tensor ranks add up.
  void backward_input(ConstTensorView dwide, ConstTensorView ends, TensorView dx) const;

 private:
  Context& context_;
  ConstTensorView gate_up_, gate_up_bias_, down_;  // [E, ...]
  kernels::SwiGluRule rule_;
  tensor_parallel::AxisCuts of_gate_up_, of_down_;
};

// The gradients of their weights; absent ones are skipped.
void make_gate_up_gradient(Context& context, const Gradient& gradient, int64_t experts, int64_t feed_forward,
                           const ExpertRows& rows, ConstTensorView dwide);
// A bias is the weight of an input that is 1 for each row: `ones` [rows, 1] are these inputs.
void make_gate_up_bias_gradient(Context& context, const Gradient& gradient, int64_t experts, const ExpertRows& rows,
                                ConstTensorView dwide, ConstTensorView ones);
ScopedTensor ones_of_rows(Context& context, DType dtype, int64_t rows);
void make_down_gradient(Context& context, const Gradient& gradient, int64_t experts, int64_t feed_forward,
                        const ExpertRows& rows, ConstTensorView dy, ConstTensorView activated);

// How tensor ranks share one expert of this width: as they share an MLP.
Split split_of_gate_up(int64_t feed_forward);
Split split_of_down(int64_t feed_forward);

}  // namespace trivet::model
