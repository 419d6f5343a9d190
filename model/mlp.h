// The feed-forward half of a block, in its three forms. T rows, H hidden, F feed-forward.
//
//   Gelu:    x[T, H] --up--> [T, F] --gelu--> [T, F] --down--> y[T, H]                            (GPT-2)
//   SwiGlu:  x[T, H] --gate_up--> [gate | up][T, 2F] --silu(gate) * up--> [T, F] --down--> y[T, H]   (Llama)
//   GeGlu:   the same with gelu(gate) * up                                                           (Gemma)
//
// Tensor ranks share F: each has its part of gate, of up and of the columns of down.
//
// [Note: MLPs in slices] Of a long sequence, [T, F] and [T, 2F] are the largest tensors of a block. With
// Context::mlp_slice_tokens only x is kept. forward takes a slice of tokens through all of the above and drops what is between
// x and y; backward computes that again slice by slice, without y, and uses it at once. Weight gradients are added in the order
// of slices (model/row_chunks.h). Tensor ranks gather and sum one slice at a time. If backward_weight comes later, it has no
// weights to compute anything again, so what it reads of each slice is kept until then.
#pragma once

#include "model/linear.h"
#include "model/row_chunks.h"
#include "model/sub_layers.h"

namespace trivet::model {

enum class Activation { Gelu, SwiGlu, GeGlu };

class Mlp : public Layer {
 public:
  struct Options {
    int64_t hidden = 0, feed_forward = 0;
    Activation activation = Activation::Gelu;
    bool bias = true;
    double init_deviation = 0.02, init_deviation_out = 0.02;
    Adapters::Options up_adapters = {}, down_adapters = {};
  };
  explicit Mlp(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  // Leaves out down; in slices, everything.
  void forward_again(Context&, Weights, ConstTensorView x, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  enum Slot { kWide, kActivated, kDwide, kX };  // the places of Saved that this layer uses; kX only in slices

  void run_forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const;
  TensorView activate(Context&, Weights, ConstTensorView x, Saved&) const;
  void run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  void run_backward_weight(Context&, Gradients, const Saved&) const;
  void back_through_slices(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  void through_gelu(const BackwardPass& pass, ConstTensorView dy, TensorView dwide) const;
  void through_gate(const BackwardPass& pass, ConstTensorView dy, TensorView dwide) const;

  Options options_;
  Linear up_, down_;  // up_ is "up" or the fused "gate_up"
  SubLayers sub_layers_;
  int up_index_, down_index_;
};

}  // namespace trivet::model
