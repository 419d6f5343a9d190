// A block that some steps leave out: progressive layer drop (Zhang & He 2020, arXiv:2010.13369).
//
//   theta(t) = (1 - theta) exp(-gamma t) + theta       the share of steps t = 0, 1, ... that keep the last block
//   p(t)     = 1 - i / L (1 - theta(t))                block i of L, from 1: early blocks are left out less often
//
//   kept       y = x + (block(x) - x) / p(t)           so that the mean over the draws is block(x)
//   left out   y = x, and gradients of 0
//
// The draw is a function of seed, block and step alone, so all microbatches and ranks of a step make the same one. A step that
// leaves the block out computes nothing of it and does not communicate in it. It takes the same memory in the same order as
// others, so that a plan holds for every draw. Outside training the block is always kept, without a factor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/layer.h"
#include "model/description.h"

namespace trivet::model {

// p(t) of block `block` of `blocks`, from 1.
double keep_probability(const LayerDrop& drop, int64_t block, int64_t blocks, int64_t step);

class DroppedLayer final : public Layer {
 public:
  struct Options {
    std::string name;  // full name in the model: it identifies the draws
    LayerDrop drop;
    int64_t block = 1, blocks = 1;
  };
  // `layer` gives outputs of its input's shape.
  DroppedLayer(const Options& options, std::unique_ptr<Layer> layer);

  std::span<const ParameterSpec> parameters() const override { return layer_->parameters(); }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  std::string_view type() const override { return layer_->type(); }
  bool allows_sequence_parallelism() const override { return layer_->allows_sequence_parallelism(); }
  int64_t work_variant() const override { return layer_->work_variant(); }
  std::string training_problem(const Shape& input) const override { return layer_->training_problem(input); }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

  bool keeps(const RandomSite& site) const;

 private:
  enum Slot { kDy };  // the place of Saved that this layer uses

  double probability(const RandomSite& site) const;
  bool computes(const Context& context) const;
  // Runs `inner` with the gradient of the layer's output, in `scaled`, and completes dx.
  template <typename Inner>
  void through(Context& context, ConstTensorView dy, TensorView scaled, TensorView dx, const Inner& inner) const;

  Options options_;
  std::unique_ptr<Layer> layer_;
};

}  // namespace trivet::model
