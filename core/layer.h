// A layer is mathematics and shapes. It owns no tensors; one object serves every microbatch and every rank.
//
//   forward:          y  = f(weights, x)              keeps in Saved what the two others need
//   backward_input:   dx = (df/dx)^T dy               the last use of the weights
//   backward_weight:  dw += (df/dw)^T dy              needs no weights, so they may be gone
//
// Who owns what: weights and gradients are ZeRO's, x, y, dy and dx are the caller's (it decides how long they live), what goes
// from forward to backward is in Saved, and temporaries come from context.arena as ScopedTensor. The caller keeps x and dy
// valid until backward_weight of the same microbatch has returned. A layer has no decisions about layouts, precision or devices
// in it.
//
// [Note: outputs are given by the caller] A layer writes into the y and dx it is handed instead of returning memory of its own:
// only the caller knows whether an output outlives the layer (a stage boundary), lives as long as Saved, or is scratch.
//
// [Note: layers with split parameters] What goes from one layer of a model to the next is whole on every tensor rank. A layer
// whose ParameterSpecs have a Split gets its part of them, and what it makes of the parts is as wide as they are: it reads
// widths from weights[i].shape, and ends with a sum over the ranks. Made of model::Linear layers, a column-parallel one first
// and a row-parallel one last, it need say no more than their splits (model/mlp.h); one with products of its own uses AxisSum
// and AxisCuts (model/axis_sum.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/number.h"
#include "core/parameter_spec.h"
#include "core/saved.h"
#include "core/tensor_view.h"

namespace trivet {

namespace kernels {
class Kernels;
}
namespace tensor_parallel {
struct TensorAxis;
}

// B sequences of S tokens each; in a step, samples are numbered 0 .. global batch - 1 over all ranks and microbatches.
struct Microbatch {
  ConstTensorView tokens;    // int32 [B, S]
  ConstTensorView targets;   // int32 [B, S]; a negative target does not count
  int64_t first_sample = 0;  // number of the first of the B samples within the step's global batch
};

// What identifies a random draw besides the place in the model: no generator state exists (core/random.h).
struct RandomSite {
  uint64_t seed = 0;
  Number step = 0;
  int64_t first_sample = 0;
};

struct Context {
  kernels::Kernels& kernels;
  Arena& arena;  // for ScopedTensor and Saved::keep
  const Microbatch* microbatch = nullptr;
  RandomSite random;
  bool training = true;     // false: dropout does nothing, nothing need be kept
  Number loss_scale = 1.0;  // the loss layer's gradient is that of loss_scale * loss[0] / number of targets, counting or not
  // float64 [2]: the loss layer adds the sum of the microbatch's losses over targets that count, and how many count. Absent:
  // the loss is not wanted.
  TensorView loss;
  // Attention keeps its core's input and makes the core's output again in backward (Korthikanti et al. 2022). The same in a
  // microbatch's forward and backward.
  bool recompute_attention = false;
  // The ranks that hold the other parts of split parameters (tensor_parallel/tensor_axis.h); null: there are none and sums need
  // no fixed chunks. With sequence parallelism x, y, dy and dx are of the rank's own tokens, [B, S / size, H]: what a layer
  // does with each token alone needs no change.
  const tensor_parallel::TensorAxis* tensor = nullptr;
};

// Parameters of one layer, in the order of parameters(): not sharded by ZeRO, but this rank's part of split ones.
using Weights = std::span<const ConstTensorView>;

// Where backward_weight puts the gradient of one parameter. `accumulate` false: the memory holds nothing yet, overwrite it.
// Absent (frozen parameter): leave it out.
struct Gradient {
  TensorView view;
  bool accumulate = true;
};
using Gradients = std::span<const Gradient>;

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::span<const ParameterSpec> parameters() const = 0;
  virtual Shape output_shape(const Shape& input) const = 0;
  // Whether it is right where x has a rank's own tokens only (sequence parallelism): it treats each token by itself, or gathers
  // and scatters as model/token_gather.h and model/axis_sum.h do. A model with a layer that does not say so is refused.
  virtual bool allows_sequence_parallelism() const { return false; }

  virtual void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const = 0;
  // dx is absent when nobody needs it (the first layer).
  virtual void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const = 0;
  virtual void backward_weight(Context&, Gradients, const Saved&) const = 0;

  // backward_input and backward_weight where the program has them side by side. Override to fuse.
  virtual void backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                        Saved& saved) const {
    backward_input(context, weights, dy, dx, saved);
    backward_weight(context, gradients, saved);
  }
  // All three for the layer that computes the loss (it is last, so its output has no other use: y and dy do not exist).
  // Override to make each chunk of logits once. See model/lm_head.h.
  virtual void forward_backward(Context& context, Weights weights, Gradients gradients, ConstTensorView x, TensorView dx,
                                Saved& saved) const {
    forward(context, weights, x, {}, saved);
    backward(context, weights, gradients, {}, dx, saved);
  }
};

}  // namespace trivet
