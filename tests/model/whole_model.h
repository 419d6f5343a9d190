// A model with its weights and gradients in plain memory, and the shortest loop that trains it: it does what the engine does,
// without the engine.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/rank_axis.h"
#include "core/buffer.h"
#include "core/random.h"
#include "kernels/kernels.h"
#include "model/lm_head.h"
#include "model/model.h"
#include "tests/model/local_places.h"

namespace trivet::model {

// Convert the values of a tensor of any float dtype to doubles, and back.
inline std::vector<double> values_of(ConstTensorView view) {
  std::vector<double> values;
  dispatch_float(view.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < view.elements(); ++i) {
      if constexpr (std::is_same_v<T, double>)
        values.push_back(view.as<T>()[i]);
      else
        values.push_back(static_cast<double>(static_cast<float>(view.as<T>()[i])));
    }
  });
  return values;
}

inline void set_values(TensorView view, const std::vector<double>& values) {
  if (static_cast<int64_t>(values.size()) != view.elements()) throw std::logic_error("set_values: wrong number of values");
  dispatch_float(view.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < view.elements(); ++i) {
      const double value = values[i];
      if constexpr (std::is_same_v<T, double>)
        view.as<T>()[i] = value;
      else
        view.as<T>()[i] = static_cast<T>(static_cast<float>(value));
    }
  });
}

struct Batch {
  int64_t sequences = 0, length = 0;
  std::vector<int32_t> tokens, targets, documents = {}, positions = {};
  std::vector<double> reference = {};  // for pairs
  Microbatch view() const {
    const Shape shape{sequences, length};
    Microbatch view{{tokens.data(), DType::Int32, shape}, {targets.data(), DType::Int32, shape}};
    if (!reference.empty()) view.reference = {reference.data(), DType::Float64, documents.empty() ? Shape{sequences} : shape};
    if (documents.empty()) return view;
    view.documents = {documents.data(), DType::Int32, shape};
    view.positions = {positions.data(), DType::Int32, shape};
    return view;
  }
};

inline Batch random_batch(int64_t sequences, int64_t length, int64_t vocabulary, uint64_t seed) {
  Batch batch{sequences, length, {}, {}};
  for (int64_t i = 0; i < sequences * length; ++i) {
    const PhiloxBlock draw = philox(seed, static_cast<uint64_t>(i), 0);
    batch.tokens.push_back(static_cast<int32_t>(draw[0] % static_cast<uint64_t>(vocabulary)));
    batch.targets.push_back(static_cast<int32_t>(draw[1] % static_cast<uint64_t>(vocabulary)));
  }
  return batch;
}

class WholeModel {
 public:
  // On Device::Meta nothing has memory, and the arena only plans. With a tensor axis, weights and gradients are this rank's
  // parts; initial values do not depend on the axis.
  WholeModel(const Description& description, DType dtype, Device device, std::optional<DType> gradient_dtype = {},
             const comm::RankAxis* tensor = nullptr)
      : model_(build(description)),
        dtype_(dtype),
        gradient_dtype_(gradient_dtype.value_or(dtype)),
        device_(device),
        tensor_(tensor) {
    kernels_ = device == Device::Meta ? kernels::make_meta_kernels() : kernels::make_cpu_kernels(1);
    arena_ = device == Device::Meta ? std::make_unique<Arena>("plan")
                                    : std::make_unique<Arena>("activations", host_allocator(), meter_,
                                                              MemoryCategory::Activations, int64_t{1} << 28);
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) add_parameters(layer);
  }

  const Model& model() const { return model_; }
  Arena& arena() { return *arena_; }
  kernels::Kernels& kernels() { return *kernels_; }
  std::vector<std::string> parameter_names() const {
    std::vector<std::string> names;
    for (const auto& [name, buffer] : weights_) names.push_back(name);
    return names;
  }
  TensorView weight(const std::string& name) { return weights_.at(name).view(); }
  TensorView gradient(const std::string& name) { return gradients_.at(name).view(); }

  bool training = true, recompute_attention = false;
  int64_t mlp_slice_tokens = 0;
  int64_t step = 0, first_sample = 0;
  std::string frozen;  // name of a parameter that has no gradient

  // Returns the mean loss of the batch; runs forward only.
  double loss(const Batch& batch) {
    const Microbatch microbatch = batch.view();
    Context context = make_context(microbatch);
    std::vector<Saved> saved(model_.layers.size());
    std::vector<ScopedTensor> outputs = forward(context, microbatch, saved);
    const size_t last = model_.layers.size() - 1;
    model_.layers[last]->forward(context, weights_of(last), outputs.back(), {}, saved[last]);
    return loss_[0] / std::max(loss_[1], 1.0);
  }

  // Returns the mean loss, and leaves the gradients of all parameters in gradient(name). Each backward runs fused or in two
  // halves.
  double train(const Batch& batch, bool fused = true) {
    for (auto& [name, buffer] : gradients_) kernels_->zero(buffer.view());
    const Microbatch microbatch = batch.view();
    Context context = make_context(microbatch);
    context.gradient_scale = targets_per_counting_one(batch) / static_cast<double>(batch.targets.size());
    std::vector<Saved> saved(model_.layers.size());
    std::vector<ScopedTensor> outputs = forward(context, microbatch, saved);
    const size_t last = model_.layers.size() - 1;
    const Shape shape = outputs.back().view().shape;
    ScopedTensor dy;
    for (size_t layer = last + 1; layer-- > 0;) {
      ScopedTensor dx;
      if (layer > 0) dx = ScopedTensor(*arena_, dtype_, shape);
      back(context, layer, fused, layer == last ? outputs.back().view() : TensorView{}, dy.view(), dx.view(), saved[layer]);
      saved[layer].clear();
      dy = std::move(dx);
      if (layer > 0) outputs.pop_back();
    }
    return loss_[0] / std::max(loss_[1], 1.0);
  }

  void sgd_step(double lr) {
    for (auto& [name, buffer] : weights_) {
      std::vector<double> values = values_of(buffer.view());
      const std::vector<double> gradients = values_of(gradient(name));
      for (size_t i = 0; i < values.size(); ++i) values[i] -= lr * gradients[i];
      set_values(buffer.view(), values);
    }
  }

  // Logits of all rows, as [T, V].
  std::vector<double> logits(const Batch& batch) {
    const Microbatch microbatch = batch.view();
    Context context = make_context(microbatch);
    std::vector<Saved> saved(model_.layers.size());
    const std::vector<ScopedTensor> outputs = forward(context, microbatch, saved);
    const ConstTensorView x = as_rows(outputs.back().view());
    const ScopedTensor logits(*arena_, statistics_dtype(dtype_), {x.shape[0], model_.sample.classes});
    const size_t last = model_.layers.size() - 1;
    dynamic_cast<const LmHead&>(*model_.layers[last]).logits(context, weights_of(last), x, logits);
    return values_of(logits.view());
  }

 private:
  void add_parameters(size_t layer) {
    Allocator& allocator = device_ == Device::Meta ? meta_allocator() : host_allocator();
    for (size_t i = 0; i < model_.layers[layer]->parameters().size(); ++i) {
      const ParameterSpec& spec = model_.layers[layer]->parameters()[i];
      if (!spec.tied_to.empty()) continue;
      const std::string name = parameter_name(model_, layer, i);
      const int rank = tensor_ ? tensor_->rank() : 0, size = tensor_ ? tensor_->size() : 1;
      const Shape shape = tensor_parallel::local_part(spec, rank, size).shape;
      weights_[name] = Buffer(allocator, meter_, MemoryCategory::Parameters, dtype_in(spec, dtype_), shape);
      gradients_[name] = Buffer(allocator, meter_, MemoryCategory::Gradients, gradient_dtype_, shape);
      Buffer whole(allocator, meter_, MemoryCategory::Parameters, dtype_in(spec, dtype_), spec.shape);
      kernels_->initialize(whole.view(), spec.init, random_key(seed_, name), 0);
      if (device_ != Device::Meta) set_values(weight(name), local_values(values_of(whole.view()), spec, rank, size));
    }
  }
  // Returns how many targets there are for one that counts.
  static double targets_per_counting_one(const Batch& batch) {
    const auto counting = std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t target) { return target >= 0; });
    return static_cast<double>(batch.targets.size()) / static_cast<double>(std::max<int64_t>(counting, 1));
  }
  std::string owner_name(size_t layer, size_t index) const {
    const std::string& tied_to = model_.layers[layer]->parameters()[index].tied_to;
    return tied_to.empty() ? parameter_name(model_, layer, index) : tied_to;
  }
  std::vector<ConstTensorView> weights_of(size_t layer) {
    std::vector<ConstTensorView> views;
    for (size_t i = 0; i < model_.layers[layer]->parameters().size(); ++i) views.push_back(weight(owner_name(layer, i)));
    return views;
  }
  std::vector<Gradient> gradients_of(size_t layer) {
    std::vector<Gradient> views;
    for (size_t i = 0; i < model_.layers[layer]->parameters().size(); ++i)
      views.push_back(owner_name(layer, i) == frozen ? Gradient{} : Gradient{gradient(owner_name(layer, i)), true});
    return views;
  }
  Context make_context(const Microbatch& microbatch) {
    Context context{*kernels_, *arena_, &microbatch, {seed_, static_cast<double>(step), first_sample}, training};
    context.recompute_attention = recompute_attention;
    context.mlp_slice_tokens = mlp_slice_tokens;
    context.axes[Axis::Tensor] = tensor_;
    loss_[0] = loss_[1] = 0;
    if (device_ != Device::Meta) context.loss = {loss_, DType::Float64, {2}};
    return context;
  }
  // Returns the outputs of all layers except the last.
  std::vector<ScopedTensor> forward(Context& context, const Microbatch& microbatch, std::vector<Saved>& saved) {
    std::vector<ScopedTensor> outputs;
    ConstTensorView x = microbatch.input;
    for (size_t layer = 0; layer + 1 < model_.layers.size(); ++layer) {
      outputs.emplace_back(*arena_, dtype_, model_.layers[layer]->output_shape(x.shape));
      model_.layers[layer]->forward(context, weights_of(layer), x, outputs.back(), saved[layer]);
      x = outputs.back();
    }
    return outputs;
  }
  // `x` is given for the last layer, which has not gone forward yet.
  void back(Context& context, size_t layer, bool fused, TensorView x, TensorView dy, TensorView dx, Saved& saved) {
    const Layer& it = *model_.layers[layer];
    const auto weights = weights_of(layer);
    const auto gradients = gradients_of(layer);
    if (fused && !x.absent()) return it.forward_backward(context, weights, gradients, x, dx, saved);
    if (fused) return it.backward(context, weights, gradients, dy, dx, saved);
    if (!x.absent()) it.forward(context, weights, x, {}, saved);
    it.backward_input(context, weights, dy, dx, saved);
    poison_free_memory();
    it.backward_weight(context, gradients, saved);
  }

  // Overwrites all memory that has been released with NaN.
  void poison_free_memory() {
    if (device_ == Device::Meta) return;
    std::vector<ScopedTensor> blocks;
    for (int64_t free = arena_->peak_bytes() - arena_->used_bytes(); free > 0; free -= Arena::kAlignment) {
      blocks.emplace_back(*arena_, DType::Float32, Shape{Arena::kAlignment / 4});
      std::fill_n(blocks.back().view().as<float>(), Arena::kAlignment / 4, std::numeric_limits<float>::quiet_NaN());
    }
  }

  Model model_;
  double loss_[2] = {};
  DType dtype_, gradient_dtype_;
  uint64_t seed_ = 7;
  Device device_;
  const comm::RankAxis* tensor_;
  MemoryMeter meter_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Arena> arena_;
  std::map<std::string, Buffer> weights_, gradients_;
};

}  // namespace trivet::model
