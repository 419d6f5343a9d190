// The common part of layers that consist of other layers, their sub-layers.
//
// A composite layer lists the parameters of its sub-layers one after another, each under its sub-layer's name ("attention" +
// "qkv.weight"), gives each sub-layer a child of its Saved, and walks the sub-layers forward and backward. It owns them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/layer.h"
#include "kernels/elementwise.h"
#include "kernels/interface.h"

namespace trivet::model {

// The parameters of a composite layer and the range of them that belongs to each sub-layer.
class SubLayers {
 public:
  // Returns the sub-layer's index, here and among the children of Saved. If `name` is empty, its parameters keep their names.
  int add(const std::string& name, const Layer& layer);
  void add_own(ParameterSpec parameter) { parameters_.push_back(std::move(parameter)); }
  // From now on no parameter is trained, except for those of adapters (model/adapters.h).
  void freeze();

  std::span<const ParameterSpec> parameters() const { return parameters_; }
  template <typename View>
  std::span<const View> of(int index, std::span<const View> all) const {
    return all.subspan(ranges_[static_cast<size_t>(index)].first, ranges_[static_cast<size_t>(index)].count);
  }

 private:
  struct Range {
    size_t first, count;
  };
  std::vector<ParameterSpec> parameters_;
  std::vector<Range> ranges_;
};

// One backward pass through a composite layer. The mathematics is the same whether the weight gradients are computed in the
// same pass (fused) or later. The difference is how long the gradients of intermediates live: a sub-layer's backward_weight
// reads its dy.
class BackwardPass {
 public:
  BackwardPass(Context& context, Weights weights, Saved& saved) : context_(context), weights_(weights), saved_(saved) {}
  BackwardPass(Context& context, Weights weights, Gradients gradients, Saved& saved)
      : context_(context), weights_(weights), gradients_(gradients), saved_(saved), fused_(true) {}

  Context& context() const { return context_; }
  Weights weights() const { return weights_; }
  Gradients gradients() const { return gradients_; }  // empty unless fused
  Saved& saved() const { return saved_; }
  bool fused() const { return fused_; }
  // Keeps what backward_weight reads; null in a fused pass, after which nothing reads it.
  Saved* keeper() const { return fused_ ? nullptr : &saved_; }

  // Releases in a fused pass what nothing reads any more.
  void done_with(int slot) const {
    if (fused_) saved_.release(slot);
  }
  // Runs backward_input of a sub-layer or, if fused, its backward, after which nothing that it has kept is left.
  void through(const Layer& layer, const SubLayers& sub_layers, int index, ConstTensorView dy, TensorView dx) const;

 private:
  Context& context_;
  Weights weights_;
  Gradients gradients_;
  Saved& saved_;
  bool fused_ = false;
};

// Memory of an intermediate: `keeper` keeps it under `slot`; without a keeper it is released with this object.
class Intermediate {
 public:
  Intermediate(Arena& arena, Saved* keeper, int slot, DType dtype, const Shape& shape);
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  operator ConstTensorView() const { return view_; }

 private:
  ScopedTensor scoped_;
  TensorView view_;
};

// A gradient that backward_weight reads, so it is kept until that is done, unless the pass is fused.
class IntermediateGradient : public Intermediate {
 public:
  IntermediateGradient(const BackwardPass& pass, int slot, DType dtype, const Shape& shape)
      : Intermediate(pass.context().arena, pass.keeper(), slot, dtype, shape) {}
};

// Returns the dropout at the place in the model that has this name; nothing is dropped outside training.
kernels::DropoutSite dropout_site(const Context& context, const std::string& name, double rate);
// Does the same for an activation between blocks, of which a rank may have only its own tokens, of this shape [B, S / size, H].
kernels::DropoutSite dropout_site(const Context& context, const std::string& name, double rate, const Shape& shape);

}  // namespace trivet::model
