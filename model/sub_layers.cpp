#include "model/sub_layers.h"

#include "core/random.h"
#include "model/adapters.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::own_tokens;

int SubLayers::add(const std::string& name, const Layer& layer) {
  const size_t first = parameters_.size();
  for (ParameterSpec parameter : layer.parameters()) {
    if (!name.empty()) parameter.name = name + "." + parameter.name;
    parameters_.push_back(std::move(parameter));
  }
  ranges_.push_back({first, parameters_.size() - first});
  return static_cast<int>(ranges_.size()) - 1;
}

void SubLayers::freeze() {
  for (ParameterSpec& parameter : parameters_) {
    parameter.trainable = is_adapter(parameter.name);
    if (!parameter.trainable) parameter.update = {};
  }
}

void BackwardPass::through(const Layer& layer, const SubLayers& sub_layers, int index, ConstTensorView dy,
                           TensorView dx) const {
  const Weights weights = sub_layers.of(index, weights_);
  Saved& saved = saved_.child(index);
  if (!fused_) return layer.backward_input(context_, weights, dy, dx, saved);
  layer.backward(context_, weights, sub_layers.of(index, gradients_), dy, dx, saved);
  saved.clear();
}

Intermediate::Intermediate(Arena& arena, Saved* keeper, int slot, DType dtype, const Shape& shape) {
  if (keeper) {
    view_ = keeper->keep(arena, slot, dtype, shape);
  } else {
    scoped_ = ScopedTensor(arena, dtype, shape);
    view_ = scoped_;
  }
}

kernels::DropoutSite dropout_site(const Context& context, const std::string& name, double rate) {
  if (!context.training || rate == 0) return {};
  return {.rate = static_cast<float>(rate),
          .key = random_key(context.random.seed, name),
          .step = context.random.step,
          .first_sample = context.random.first_sample};
}

kernels::DropoutSite dropout_site(const Context& context, const std::string& name, double rate, const Shape& shape) {
  kernels::DropoutSite site = dropout_site(context, name, rate);
  if (site.rate == 0 || shape.elements() == 0) return site;
  const int64_t of_token = shape.elements() / (shape[0] * shape[1]);
  const auto [first, second] = own_tokens(context, shape[1]).ranges;
  site.first_element = first.begin * of_token;
  if (second.count() > 0) site.second = first.count() * of_token, site.skipped = (second.begin - first.end) * of_token;
  return site;
}

}  // namespace trivet::model
