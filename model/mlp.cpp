#include "model/mlp.h"

#include "kernels/kernels.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::all_tokens;
namespace {

Linear make_up(const Mlp::Options& options) {
  const bool gated = options.activation != Activation::Gelu;
  const int64_t feed_forward = options.feed_forward;
  const Split split = gated ? Split{0, {feed_forward, feed_forward}} : Split{0, {feed_forward}};
  return Linear({.in = options.hidden,
                 .out = gated ? 2 * feed_forward : feed_forward,
                 .bias = options.bias,
                 .init_deviation = options.init_deviation,
                 .split = split,
                 .adapters = options.up_adapters});
}

Linear make_down(const Mlp::Options& options) {
  return Linear({.in = options.feed_forward,
                 .out = options.hidden,
                 .bias = options.bias,
                 .init_deviation = options.init_deviation_out,
                 .split = {1, {options.feed_forward}},
                 .adapters = options.down_adapters});
}

}  // namespace

Mlp::Mlp(const Options& options) : options_(options), up_(make_up(options)), down_(make_down(options)) {
  up_index_ = sub_layers_.add(options.activation == Activation::Gelu ? "up" : "gate_up", up_);
  down_index_ = sub_layers_.add("down", down_);
}

void Mlp::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  Shape wide_shape = all_tokens(context, x.shape), narrow = wide_shape;
  wide_shape[-1] = sub_layers_.of(up_index_, weights)[0].shape[0];
  narrow[-1] = sub_layers_.of(down_index_, weights)[0].shape[1];
  const TensorView wide = saved.keep(context.arena, kWide, x.dtype, wide_shape);
  const TensorView activated = saved.keep(context.arena, kActivated, x.dtype, narrow);
  const Weights of_up = sub_layers_.of(up_index_, weights);
  Saved& up_saved = saved.child(up_index_);
  switch (options_.activation) {
    case Activation::Gelu: up_.forward_with_gelu(context, of_up, x, wide, activated, up_saved); break;
    case Activation::SwiGlu:
    case Activation::GeGlu:
      up_.forward(context, of_up, x, wide, up_saved);
      context.kernels.swiglu(
          {.gate_up = as_rows(wide), .y = as_rows(activated), .gelu = options_.activation == Activation::GeGlu});
  }
  down_.forward(context, sub_layers_.of(down_index_, weights), activated, y, saved.child(down_index_));
}

void Mlp::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  const IntermediateGradient dwide(pass, kDwide, dy.dtype, pass.saved()[kWide].shape);
  switch (options_.activation) {
    case Activation::Gelu: through_gelu(pass, dy, dwide); break;
    case Activation::SwiGlu:
    case Activation::GeGlu: through_gate(pass, dy, dwide);
  }
  pass.through(up_, sub_layers_, up_index_, dwide, dx);
}

// The product that computes the gradient of down's input writes dwide instead of storing that gradient.
void Mlp::through_gelu(const BackwardPass& pass, ConstTensorView dy, TensorView dwide) const {
  const ConstTensorView wide = pass.saved()[kWide];
  const Weights weights = sub_layers_.of(down_index_, pass.weights());
  Saved& saved = pass.saved().child(down_index_);
  if (pass.fused())
    down_.backward_with_gelu(pass.context(), weights, sub_layers_.of(down_index_, pass.gradients()), dy, wide, dwide, saved);
  else
    down_.backward_input_with_gelu(pass.context(), weights, dy, wide, dwide, saved);
}

void Mlp::through_gate(const BackwardPass& pass, ConstTensorView dy, TensorView dwide) const {
  const ScopedTensor dactivated(pass.context().arena, dy.dtype, pass.saved()[kActivated].shape);
  pass.through(down_, sub_layers_, down_index_, dy, dactivated);
  pass.context().kernels.swiglu_backward({.dy = as_rows(dactivated.view()),
                                          .gate_up = as_rows(pass.saved()[kWide]),
                                          .dgate_up = as_rows(dwide),
                                          .gelu = options_.activation == Activation::GeGlu});
}

void Mlp::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void Mlp::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                   Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void Mlp::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  down_.backward_weight(context, sub_layers_.of(down_index_, gradients), saved.child(down_index_));
  up_.backward_weight(context, sub_layers_.of(up_index_, gradients), saved.child(up_index_));
}

}  // namespace trivet::model
