#include "model/tokens.h"

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

constexpr double kPositionDeviation = 0.02;  // for initial values, as in GPT-2 and in vision transformers

// Maps [B, W, P, Q] as a matrix for each sample, [B, W, P Q].
template <typename View>
View as_matrices(const View& maps) {
  const Shape& s = maps.shape;
  return maps.reshaped({s[0], s[1], s[2] * s[3]});
}

// [B, T, W] as [B, T W]
template <typename View>
View as_lists(const View& sequences) {
  const Shape& s = sequences.shape;
  return sequences.reshaped({s[0], s[1] * s[2]});
}

// [B, C, H, W] as [B, C H, W]
template <typename View>
View as_columns(const View& images) {
  const Shape& s = images.shape;
  return images.reshaped({s[0], s[1] * s[2], s[3]});
}

}  // namespace

Patches::Patches(const Options& options)
    : convolution_({.in_channels = options.channels,
                    .out_channels = options.width,
                    .kernel = options.size,
                    .stride = options.size,
                    .bias = options.bias}) {}

Shape Patches::output_shape(const Shape& images) const {
  const Shape maps = convolution_.output_shape(images);
  return {maps[0], maps[2] * maps[3], maps[1]};
}

void Patches::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  saved.reference(kX, x);
  const ScopedTensor maps(context.arena, x.dtype, convolution_.output_shape(x.shape));
  convolution_.forward(context, weights, x, maps, saved.child(0));
  context.kernels.transpose(as_matrices(maps.view()), y);
}

void Patches::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  const TensorView dmaps = saved.keep(context.arena, kDmaps, dy.dtype, convolution_.output_shape(saved[kX].shape));
  context.kernels.transpose(dy, as_matrices(dmaps));
  convolution_.backward_input(context, weights, dmaps, dx, saved.child(0));
}

void Patches::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  convolution_.backward_weight(context, gradients, saved.child(0));
}

void Columns::forward(Context& context, Weights, ConstTensorView x, TensorView y, Saved&) const {
  context.kernels.transpose(as_columns(x), y);
}

void Columns::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved&) const {
  if (!dx.absent()) context.kernels.transpose(dy, as_columns(dx));
}

Positions::Positions(int64_t tokens, int64_t width) {
  parameters_.push_back({.name = "weight", .shape = {tokens, width}, .init = {Init::Kind::Normal, kPositionDeviation}});
}

// The vectors of all places are one long bias of a sample.
void Positions::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved&) const {
  const ConstTensorView table = weights[0];
  context.kernels.add_bias({.x = as_lists(x), .bias = table.reshaped({table.elements()}), .out = as_lists(y)});
}

void Positions::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  saved.reference(kDy, dy);
  if (!dx.absent()) context.kernels.copy(dy, dx);
}

void Positions::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const Gradient& table = gradients[0];
  if (table.view.absent()) return;
  const ConstTensorView dy = saved[kDy];
  context.kernels.bias_gradient(
      {.dy = as_lists(dy), .dbias = table.view.reshaped({table.view.elements()}), .accumulate = table.accumulate});
}

// The average of a window that is as high as the sequence is long, and one number wide.
void TokenMean::forward(Context& context, Weights, ConstTensorView x, TensorView y, Saved&) const {
  const int64_t samples = x.shape[0], tokens = x.shape[1], width = x.shape[2];
  context.kernels.pool({.x = x.reshaped({samples, 1, tokens, width}),
                        .y = y.reshaped({samples, 1, 1, width}),
                        .window = {.rows = tokens, .cols = 1},
                        .kind = kernels::Pooling::Average});
}

void TokenMean::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved&) const {
  if (dx.absent()) return;
  const int64_t samples = dx.shape[0], tokens = dx.shape[1], width = dx.shape[2];
  context.kernels.pool_backward({.dy = dy.reshaped({samples, 1, 1, width}),
                                 .dx = dx.reshaped({samples, 1, tokens, width}),
                                 .window = {.rows = tokens, .cols = 1},
                                 .kind = kernels::Pooling::Average});
}

}  // namespace trivet::model
