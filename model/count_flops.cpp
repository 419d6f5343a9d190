#include "model/count_flops.h"

#include "core/rising_number.h"
#include "kernels/kernels.h"
#include "kernels/observed_kernels.h"

namespace trivet::model {
namespace {

class FlopCounter final : public kernels::KernelObserver {
 public:
  void ended(const kernels::KernelCall& call) override {
    flops.all += call.flops;
    if (call.bound != kernels::Bound::Memory) flops.products += call.flops;
  }
  LayerFlops flops;
};

struct LayerCosts {
  LayerFlops flops;
  int64_t inner_bytes = 0;
};

LayerCosts costs_of(const Layer& layer, ConstTensorView x, TensorView dx, const Microbatch& microbatch, DType dtype) {
  FlopCounter counter;
  const auto meta = kernels::make_meta_kernels();
  const auto kernels = kernels::make_observed_kernels(*meta, counter);
  Arena arena("costs");
  Context context{.kernels = *kernels, .arena = arena, .microbatch = &microbatch};
  context.random.step = static_cast<double>(kStepAfterAllRuns);
  std::vector<ConstTensorView> weights;
  std::vector<Gradient> gradients;
  for (const ParameterSpec& spec : layer.parameters()) {
    weights.push_back({nullptr, dtype_in(spec, dtype), spec.shape});
    gradients.push_back(spec.trainable ? Gradient{{nullptr, dtype, spec.shape}, false} : Gradient{});
  }
  Saved saved;
  if (layer.role() == LayerRole::Loss) {
    layer.forward_backward(context, weights, gradients, x, dx, saved);
  } else {
    const TensorView y{nullptr, dtype, layer.output_shape(x.shape)};
    layer.forward(context, weights, x, y, saved);
    layer.backward(context, weights, gradients, y, dx, saved);
  }
  return {counter.flops, arena.peak_bytes()};
}

std::vector<LayerCosts> costs_of_layers(const Model& model, int64_t samples) {
  const Microbatch microbatch = model.sample.without_memory(samples);
  // FLOPs are the same for every dtype.
  const DType dtype = is_float(microbatch.input.dtype) ? microbatch.input.dtype : DType::Float32;
  std::vector<LayerCosts> costs;
  ConstTensorView x = microbatch.input;
  TensorView dx;
  for (const auto& layer : model.layers) {
    costs.push_back(costs_of(*layer, x, dx, microbatch, dtype));
    dx = TensorView{nullptr, dtype, layer->output_shape(x.shape)};
    x = dx;
  }
  return costs;
}

}  // namespace

std::vector<LayerFlops> count_flops(const Model& model, int64_t samples) {
  std::vector<LayerFlops> flops;
  for (const LayerCosts& layer : costs_of_layers(model, samples)) flops.push_back(layer.flops);
  return flops;
}

std::vector<int64_t> count_inner_bytes(const Model& model) {
  std::vector<int64_t> bytes;
  for (const LayerCosts& layer : costs_of_layers(model, 1)) bytes.push_back(layer.inner_bytes);
  return bytes;
}

double flops_per_sample(const Model& model) {
  if (model.stated_flops_per_sample > 0) return model.stated_flops_per_sample;
  double products = 0;
  for (const LayerFlops& layer : count_flops(model, 1)) products += layer.products;
  return products;
}

}  // namespace trivet::model
