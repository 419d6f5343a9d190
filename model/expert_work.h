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

// A low-rank adapter (model/adapters.h) of one matrix of each expert. Tensor ranks share it as they share that of an ordinary
// matrix: `low` is a sum over them if the matrix is split along its inputs, and its gradient if along its outputs.
struct ExpertAdapter {
  ConstTensorView a, b;  // [E r, in], [E out, r]; absent: there is none
  double scale = 1;

  bool exists() const { return !a.absent(); }
};

// Products of rows and adapters, [rows, r]: scale (x A^T), or the gradient of that. Absent or empty: there is no adapter. They
// may have more rows than there are, so that a sum over ranks does not depend on how many there are.
struct LowRows {
  TensorView gate_up, down;
};

class ExpertWork {
 public:
  // `gate_up` [E 2F, H], perhaps with a bias [E 2F], and `down` [E H, F]; the whole width of an expert is `feed_forward`.
  struct Weights {
    ConstTensorView gate_up, gate_up_bias, down;
    ExpertAdapter gate_up_adapter, down_adapter;
  };
  ExpertWork(Context& context, const Weights& weights, int64_t feed_forward, const kernels::SwiGluRule& rule);

  int64_t width() const { return down_.shape[2]; }  // F

  // wide[rows, 2F], activated[rows, F]
  void activate(const ExpertRows& rows, TensorView wide, TensorView activated, const LowRows& low) const;
  // out[rows, H], which tensor ranks add up
  void apply_down(ConstTensorView activated, ConstTensorView ends, TensorView out) const;
  // Computes the part of these rows that the adapter adds: whole on every tensor rank.
  void apply_down_adapter(ConstTensorView low, ConstTensorView ends, TensorView out) const;

  // Makes dlow.down, for `backward` and the gradient of A.
  void begin_backward(ConstTensorView dy, ConstTensorView ends, const LowRows& dlow) const;
  // The gradients of gate and up, and of weights by choice, which tensor ranks add up. `scratch` is like `activated`. Makes
  // dlow.gate_up.
  void backward(const ExpertRows& rows, ConstTensorView dy, ConstTensorView wide, TensorView scratch, TensorView dwide,
                TensorView dweights, const LowRows& dlow) const;
  // That of x, which tensor ranks add up.
  void backward_input(ConstTensorView dwide, ConstTensorView ends, TensorView dx) const;
  // Computes the part of it that the adapter adds: whole on every tensor rank.
  void backward_input_adapter(ConstTensorView dlow, ConstTensorView ends, TensorView dx) const;

 private:
  struct LowProduct {
    ConstTensorView x, matrix;  // the matrix is an adapter's, [E r, in] or, not transposed, [E out, r]
    bool transpose = false;
    bool is_sum = false;  // over tensor ranks
    const kernels::ProductCuts* cuts = nullptr;
    double scale = 1;
  };
  void make_low(const LowProduct& product, ConstTensorView ends, TensorView low) const;
  ConstTensorView of_experts(ConstTensorView matrix) const;

  Context& context_;
  ConstTensorView gate_up_, gate_up_bias_, down_;  // [E, ...]
  ExpertAdapter gate_up_adapter_, down_adapter_;
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
// Those of A and B of an adapter of gate_up, or of down, from x and dy of the matrix.
struct AdapterGradients {
  Gradient a, b;
};
void make_gate_up_adapter_gradients(Context& context, const AdapterGradients& gradients, int64_t experts, int64_t feed_forward,
                                    const ExpertRows& rows, ConstTensorView dwide, ConstTensorView low, ConstTensorView dlow);
void make_down_adapter_gradients(Context& context, const AdapterGradients& gradients, int64_t experts, int64_t feed_forward,
                                 const ExpertRows& rows, ConstTensorView dy, ConstTensorView activated, ConstTensorView low,
                                 ConstTensorView dlow);

// How tensor ranks share one expert of this width: as they share an MLP.
Split split_of_gate_up(int64_t feed_forward);
Split split_of_down(int64_t feed_forward);

}  // namespace trivet::model
