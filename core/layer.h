// A layer is mathematics and shapes. It owns no tensors; one object serves every microbatch and every rank.
//
//   forward:          y  = f(weights, x)              keeps in Saved what the other two need
//   backward_input:   dx = (df/dx)^T dy               the last use of the weights
//   backward_weight:  dw += (df/dw)^T dy              needs no weights, so they may be gone
//
// Who owns what: ZeRO owns weights and gradients; the caller owns x, y, dy and dx and decides how long they live; Saved owns
// what forward keeps for backward; temporaries come from context.arena as ScopedTensor. The caller keeps x and dy valid until
// backward_weight of the same microbatch has returned. A layer makes no decisions about layouts, precision or devices.
//
// [Note: outputs are given by the caller] A layer writes into the y and dx it is handed instead of returning memory of its own:
// only the caller knows whether an output outlives the layer (a stage boundary), lives as long as Saved, or is scratch.
//
// [Note: layers with split parameters] The activations that pass between the layers of a model are complete on every tensor
// rank. A layer whose ParameterSpecs have a Split receives this rank's part of those parameters, and its intermediate results
// are only as wide as that part: it reads widths from weights[i].shape, and ends with a sum over the ranks. A layer built from
// model::Linear layers, column-parallel first and row-parallel last, needs to state only their splits (model/mlp.h); one with
// its own matrix products uses AxisSum and AxisCuts (tensor_parallel/axis_sum.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/axis.h"
#include "core/layer_role.h"
#include "core/logits_reader.h"
#include "core/number.h"
#include "core/parameter_spec.h"
#include "core/sample.h"
#include "core/saved.h"
#include "core/tensor_view.h"

namespace trivet {

namespace kernels {
class Kernels;
}
namespace comm {
struct RankAxis;
}

// Identifies a random draw, together with its place in the model; there is no generator state (core/random.h).
struct RandomSite {
  uint64_t seed = 0;
  Number step = 0;
  int64_t first_sample = 0;
};

// The axes of the mesh by name. Null: layers do not communicate over the axis, and its sums need no fixed chunks.
class RankAxes {
 public:
  const comm::RankAxis* operator[](Axis axis) const { return axes_[static_cast<size_t>(axis)]; }
  const comm::RankAxis*& operator[](Axis axis) { return axes_[static_cast<size_t>(axis)]; }

 private:
  std::array<const comm::RankAxis*, kAxes> axes_{};
};

// In layout mode the tokens of each sequence are cut into leaves, so that sums over tokens do not depend on how many context
// ranks share them: each leaf is summed by itself, and the leaves in a balanced tree (kernels/leaf_kernels.h).
struct TokenLeaves {
  struct Range {
    int64_t begin = 0, end = 0;
  };
  kernels::Kernels& within;                // for sums over a part of a leaf, by layers that do not sum all rows at once
  std::vector<std::vector<Range>> ranges;  // [leaf of this rank][sequence] rows of the microbatch
};

struct Context {
  kernels::Kernels& kernels;
  Arena& arena;  // for ScopedTensor and Saved::keep
  const Microbatch* microbatch = nullptr;
  RandomSite random;
  bool training = true;         // false: dropout does nothing, and nothing needs to be kept
  Number gradient_scale = 1.0;  // the loss layer's gradient is that of gradient_scale x the sum of its losses
  // float64 [2]: the loss layer adds the sum of the microbatch's losses over targets that count, and the number of those
  // targets. Absent: nobody needs the loss.
  TensorView loss;
  // float64 [1]: a loss layer that chooses a class for each target adds the number of right ones among those that count. Other
  // loss layers leave it as it is. Absent: nobody needs it.
  TensorView correct;
  // float64 [2]: a loss layer that compares pairs of answers adds the sums of the rewards of the preferred and of the rejected
  // ones (kernels/preference_rule.h). Absent: nobody needs them, or the loss layer has none.
  TensorView rewards;
  // int64 [experts()]: a layer with experts adds how many tokens each computes. Absent: nobody needs it, or they are counted.
  TensorView expert_tokens;
  // In an evaluation: a loss layer that computes logits hands them over, for the samples that the reader wants, and one that
  // compares answers their log-probabilities. Other loss layers do not call it. Null: nobody wants them.
  LogitsReader* logits = nullptr;
  // Attention keeps its core's input and recomputes the core's output in backward (Korthikanti et al. 2022). Must have the same
  // value in a microbatch's forward and backward.
  bool recompute_attention = false;
  // MLPs keep only their input and work on so many tokens of the rank at a time, in backward again (model/mlp.h); 0: on all,
  // and they keep what they compute. Must have the same value in a microbatch's forward and backward.
  int64_t mlp_slice_tokens = 0;
  // int32 [B, S]: the place of each token in its sequence, if some tokens are left out (model/dropped_tokens.h). Absent: they
  // are 0, 1, ..., S - 1. Must have the same values in a microbatch's forward and backward.
  ConstTensorView positions;
  // The number of tokens of sequences, if x has more (padding at their ends, whose results, if computed, are not read)
  // or fewer (`positions`); 0: as many as x. Rotary frequencies may depend on the length of a sequence.
  int64_t present_tokens = 0;
  // Null: sums over tokens need no fixed order. Otherwise `kernels` see to it: they take a tensor with as many rows as the rank
  // has tokens for rows of tokens. Other sums, and those over a part of the rows, have to use `within`, which no field of a
  // context but `kernels` and this one changes (LmHead).
  const TokenLeaves* leaves = nullptr;
  // The axes over which layers communicate. Axis::Tensor: the ranks that hold the other parts of split parameters; if it splits
  // tokens, x, y, dy and dx hold only the rank's own tokens, [B, S / size, H], and operations that treat each token separately
  // need no change.
  RankAxes axes;
};

// Parameters of one layer, in the order of parameters(). They are not sharded by ZeRO, but split ones are only this rank's
// part.
using Weights = std::span<const ConstTensorView>;

// Where backward_weight puts the gradient of one parameter. If `accumulate` is false, the memory holds nothing yet: overwrite
// it. If `view` is absent (frozen parameter), skip this gradient.
struct Gradient {
  TensorView view;
  bool accumulate = true;
  // For parameters of experts that ranks share: ends what comes of one microbatch, of which a rank then gets several, each
  // rounded by itself. Returns `accumulate` for the next one. Empty: there is one.
  std::function<bool()> next = {};
};
using Gradients = std::span<const Gradient>;

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::span<const ParameterSpec> parameters() const = 0;
  virtual Shape output_shape(const Shape& input) const = 0;
  // The last layer of a model, and no other, computes the loss.
  virtual LayerRole role() const { return LayerRole::Hidden; }
  // The kind of layer, which a config can name to divide a model into stages (pipeline.partition "type:...").
  virtual std::string_view type() const { return "layer"; }
  // Tells layers of one class apart that have the same parameters and shapes but do different work, such as attention with
  // windows of different lengths. Predictions run layers that are alike only once.
  virtual int64_t work_variant() const { return 0; }
  // Checks whether the layer is correct when x holds only a rank's own tokens (sequence parallelism): it treats each
  // token separately, or gathers and scatters as tensor_parallel/token_gather.h and tensor_parallel/axis_sum.h do.
  // Sequence parallelism is refused for a model with a layer that returns false.
  virtual bool allows_sequence_parallelism() const { return false; }
  // Checks whether the layer is correct when context ranks share the tokens of each sequence, x[B, S / c, H]: it treats each
  // token separately, or communicates over context.axes[Axis::Context]. Otherwise parallel.context is refused.
  virtual bool allows_context_parallelism() const { return false; }
  // The number of experts among which the layer divides tokens; 0: it does not.
  virtual int64_t experts() const { return 0; }
  // Says why the layer cannot learn from inputs of this shape, "needs ..."; empty if it can.
  virtual std::string training_problem(const Shape&) const { return ""; }

  virtual void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const = 0;
  // The first layer's x is the microbatch's input, and its dx is absent: nobody needs it.
  virtual void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const = 0;
  virtual void backward_weight(Context&, Gradients, const Saved&) const = 0;

  // Keeps what forward keeps, for the backward that follows: recomputation. Override to leave out what only y needs.
  virtual void forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
    const ScopedTensor y(context.arena, x.dtype, output_shape(x.shape));
    forward(context, weights, x, y, saved);
  }
  // Runs backward_input and backward_weight where the program has one right after the other. Override to fuse them.
  virtual void backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                        Saved& saved) const {
    backward_input(context, weights, dy, dx, saved);
    backward_weight(context, gradients, saved);
  }
  // Runs all three for the layer that computes the loss. That layer is last, so its output has no other use: y and dy do not
  // exist. Override to compute each chunk of logits only once; see model/lm_head.h.
  virtual void forward_backward(Context& context, Weights weights, Gradients gradients, ConstTensorView x, TensorView dx,
                                Saved& saved) const {
    forward(context, weights, x, {}, saved);
    backward(context, weights, gradients, {}, dx, saved);
  }
};

}  // namespace trivet
