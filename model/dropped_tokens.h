// A block that some steps compute for a random part of the tokens only: random layerwise token dropping (Yao et al. 2022,
// arXiv:2211.11586). The other tokens pass it unchanged.
//
//   K(t) = floor(t / steps (max - min) + min), down to a multiple of `multiple`, at most max      in step t = 0, 1, ...
//   K(t) = max, if min is max, too
//   y[chosen] = block(x[chosen]), y[others] = x[others]                                           K(t) of each sequence
//
// If K(t) is not less than the sequence, the block computes all tokens. It sees the chosen ones in their order and with the
// positions that they have in the whole sequence; a causal block's tokens see the chosen ones before them. The choice is a
// function of seed, block, step and sample alone, so it does not depend on the layout. Outside training nothing is left out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/layer.h"
#include "model/description.h"

namespace trivet::model {

// K(t), for steps from 0.
int64_t kept_tokens(const TokenDrop& drop, int64_t step);

// Returns, for each K in turn, the first step that has it; the last one has the most tokens.
std::vector<int64_t> steps_of_new_kept_tokens(const TokenDrop& drop);

// The model as it is in the end, for steps that are only timed.
Description with_most_tokens(Description description);

class DroppedTokens final : public Layer {
 public:
  // `name` is the layer's full name in the model: it identifies the choices. `layer` gives outputs of its input's shape.
  DroppedTokens(std::string name, const TokenDrop& drop, std::unique_ptr<Layer> layer);

  std::span<const ParameterSpec> parameters() const override { return layer_->parameters(); }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  std::string_view type() const override { return layer_->type(); }
  // A block with a window never leaves tokens out (engine/config/token_drop.cpp), so the two numbers do not meet.
  int64_t work_variant() const override { return -drop_.max_tokens; }
  int64_t experts() const override { return layer_->experts(); }
  std::string training_problem(const Shape& input) const override { return layer_->training_problem(input); }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  enum Slot { kChosen, kX, kDy };  // the places of Saved that this layer uses

  // K of this step, or 0 if the block computes all tokens of sequences [B, S, H].
  int64_t chosen_count(const Context& context, const Shape& sequences) const;
  // Runs `inner` with the gradient of the block's output, in `dy_chosen`, and with room for that of its input; completes dx.
  template <typename Inner>
  void through(Context& context, ConstTensorView dy, TensorView dy_chosen, TensorView dx, const Saved& saved,
               const Inner& inner) const;

  std::string name_;
  TokenDrop drop_;
  std::unique_ptr<Layer> layer_;
};

}  // namespace trivet::model
