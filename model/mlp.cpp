#include "model/mlp.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::all_tokens;
namespace {

// Calls work(context, rows, gradients) for each slice of x. A slice has as many tokens on all tensor ranks together.
void for_each_slice(Context& context, const Shape& x, Gradients gradients, const ChunkWork& work) {
  const int64_t tensor_ranks = all_tokens(context, x)[1] / x[1];
  for_each_chunk(context, x.rows(), std::max<int64_t>(context.mlp_slice_tokens / tensor_ranks, 1), gradients, work);
}

template <typename View>
View slice_of(View view, const RowChunk& rows) {
  if (view.absent()) return view;
  return as_rows(view).row_range(rows.first, rows.rows).reshaped({1, rows.rows, view.shape.cols()});
}

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
  if (context.mlp_slice_tokens == 0) return run_forward(context, weights, x, y, saved);
  saved.reference(kX, x);
  for_each_slice(context, x.shape, {}, [&](Context& within, const RowChunk& rows, Gradients) {
    Saved dropped;
    run_forward(within, weights, slice_of(x, rows), slice_of(y, rows), dropped);
  });
}

void Mlp::forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  if (context.mlp_slice_tokens > 0) return saved.reference(kX, x);
  const TensorView activated = activate(context, weights, x, saved);
  down_.keep_again(context, sub_layers_.of(down_index_, weights), activated, x.shape, saved.child(down_index_));
}

void Mlp::run_forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const TensorView activated = activate(context, weights, x, saved);
  down_.forward(context, sub_layers_.of(down_index_, weights), activated, y, saved.child(down_index_));
}

// Returns the input of down.
TensorView Mlp::activate(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
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
  return activated;
}

// [Note: MLPs in slices]
void Mlp::back_through_slices(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  const ConstTensorView x = pass.saved()[kX];
  int slice = 0;
  for_each_slice(pass.context(), x.shape, pass.gradients(), [&](Context& within, const RowChunk& rows, Gradients gradients) {
    Saved dropped;
    Saved& saved = pass.fused() ? dropped : pass.saved().child(slice++);
    const ConstTensorView activated = activate(within, pass.weights(), slice_of(x, rows), saved);
    down_.keep_again(within, sub_layers_.of(down_index_, pass.weights()), activated, slice_of(dy, rows).shape,
                     saved.child(down_index_));
    const BackwardPass of_slice =
        pass.fused() ? BackwardPass(within, pass.weights(), gradients, saved) : BackwardPass(within, pass.weights(), saved);
    run_backward(of_slice, slice_of(dy, rows), slice_of(dx, rows));
  });
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
  const BackwardPass pass(context, weights, saved);
  context.mlp_slice_tokens == 0 ? run_backward(pass, dy, dx) : back_through_slices(pass, dy, dx);
}

void Mlp::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                   Saved& saved) const {
  const BackwardPass pass(context, weights, gradients, saved);
  context.mlp_slice_tokens == 0 ? run_backward(pass, dy, dx) : back_through_slices(pass, dy, dx);
}

void Mlp::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  if (context.mlp_slice_tokens == 0) return run_backward_weight(context, gradients, saved);
  int slice = 0;
  for_each_slice(context, saved[kX].shape, gradients, [&](Context& within, const RowChunk&, Gradients of_slice) {
    run_backward_weight(within, of_slice, saved.child(slice++));
  });
}

void Mlp::run_backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  down_.backward_weight(context, sub_layers_.of(down_index_, gradients), saved.child(down_index_));
  up_.backward_weight(context, sub_layers_.of(up_index_, gradients), saved.child(up_index_));
}

}  // namespace trivet::model
