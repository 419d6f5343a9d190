#include "model/dropped_tokens.h"

#include "core/random.h"
#include "core/rising_number.h"
#include "kernels/kernels.h"

namespace trivet::model {
namespace {

Shape with_tokens(const Shape& sequences, int64_t tokens) { return {sequences[0], tokens, sequences[2]}; }

// The context of the block: it knows which tokens of sequences of `length` it has.
Context of_chosen(const Context& context, ConstTensorView chosen, int64_t length) {
  Context inner = context;
  inner.positions = chosen;
  if (inner.present_tokens == 0) inner.present_tokens = length;
  return inner;
}

}  // namespace

int64_t kept_tokens(const TokenDrop& drop, int64_t step) {
  if (drop.min_tokens == drop.max_tokens) return drop.max_tokens;  // need not be a multiple
  return RisingNumber{.least = drop.min_tokens, .most = drop.max_tokens, .steps = drop.steps, .multiple = drop.multiple}.at(
      step);
}

std::vector<int64_t> steps_of_new_kept_tokens(const TokenDrop& drop) {
  return steps_of_change(0, [&](int64_t step) { return kept_tokens(drop, step); });
}

Description with_most_tokens(Description description) {
  description.token_drop.min_tokens = description.token_drop.max_tokens;
  return description;
}

DroppedTokens::DroppedTokens(std::string name, const TokenDrop& drop, std::unique_ptr<Layer> layer)
    : name_(std::move(name)), drop_(drop), layer_(std::move(layer)) {}

int64_t DroppedTokens::chosen_count(const Context& context, const Shape& sequences) const {
  if (!context.training) return 0;
  const int64_t count = kept_tokens(drop_, static_cast<int64_t>(context.random.step.value()));
  return count < sequences[1] ? count : 0;
}

void DroppedTokens::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const int64_t count = chosen_count(context, x.shape);
  if (count == 0) return layer_->forward(context, weights, x, y, saved.child(0));
  const TensorView chosen = saved.keep(context.arena, kChosen, DType::Int32, {x.shape[0], count});
  const TensorView x_chosen = saved.keep(context.arena, kX, x.dtype, with_tokens(x.shape, count));
  context.kernels.choose_tokens({.chosen = chosen,
                                 .sequence = x.shape[1],
                                 .key = random_key(context.random.seed, name_ + ".token_drop"),
                                 .step = context.random.step,
                                 .first_sample = context.random.first_sample});
  context.kernels.gather_tokens({.x = x, .chosen = chosen, .out = x_chosen});
  const ScopedTensor y_chosen(context.arena, y.dtype, x_chosen.shape);
  Context inner = of_chosen(context, chosen, x.shape[1]);
  layer_->forward(inner, weights, x_chosen, y_chosen, saved.child(0));
  context.kernels.copy(x, y);
  context.kernels.scatter_tokens({.x = y_chosen, .chosen = chosen, .out = y});
}

template <typename Inner>
void DroppedTokens::through(Context& context, ConstTensorView dy, TensorView dy_chosen, TensorView dx, const Saved& saved,
                            const Inner& inner) const {
  const TensorView chosen = saved[kChosen];
  context.kernels.gather_tokens({.x = dy, .chosen = chosen, .out = dy_chosen});
  const ScopedTensor dx_chosen(context.arena, dx.dtype, dy_chosen.shape);
  Context of_block = of_chosen(context, chosen, dy.shape[1]);
  inner(of_block, dx_chosen);
  context.kernels.copy(dy, dx);
  context.kernels.scatter_tokens({.x = dx_chosen, .chosen = chosen, .out = dx});
}

void DroppedTokens::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  const int64_t count = chosen_count(context, dy.shape);
  if (count == 0) return layer_->backward_input(context, weights, dy, dx, saved.child(0));
  const TensorView dy_chosen = saved.keep(context.arena, kDy, dy.dtype, with_tokens(dy.shape, count));
  through(context, dy, dy_chosen, dx, saved,
          [&](Context& c, TensorView dx_chosen) { layer_->backward_input(c, weights, dy_chosen, dx_chosen, saved.child(0)); });
}

void DroppedTokens::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  layer_->backward_weight(context, gradients, saved.child(0));
}

void DroppedTokens::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                             Saved& saved) const {
  const int64_t count = chosen_count(context, dy.shape);
  if (count == 0) return layer_->backward(context, weights, gradients, dy, dx, saved.child(0));
  const ScopedTensor dy_chosen(context.arena, dy.dtype, with_tokens(dy.shape, count));
  through(context, dy, dy_chosen, dx, saved, [&](Context& c, TensorView dx_chosen) {
    layer_->backward(c, weights, gradients, dy_chosen, dx_chosen, saved.child(0));
  });
}

}  // namespace trivet::model
