#include "model/count_flops.h"

#include <numeric>

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

double flops_of(const Layer& layer, ConstTensorView x, TensorView dx, const Microbatch& microbatch, DType dtype) {
  const auto kernels = kernels::make_meta_kernels();
  Arena arena("costs");
  Context context{.kernels = *kernels, .arena = arena, .microbatch = &microbatch};
  std::vector<ConstTensorView> weights;
  std::vector<Gradient> gradients;
  for (const ParameterSpec& spec : layer.parameters()) {
    weights.push_back({nullptr, dtype, spec.shape});
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
  return kernels->counters().flops;
}

}  // namespace

std::vector<double> count_flops(const Model& model, int64_t samples) {
  const Microbatch microbatch = model.sample.without_memory(samples);
  // The counts are the same for every dtype.
  const DType dtype = is_float(microbatch.input.dtype) ? microbatch.input.dtype : DType::Float32;
  std::vector<double> flops;
  ConstTensorView x = microbatch.input;
  TensorView dx;
  for (const auto& layer : model.layers) {
    flops.push_back(flops_of(*layer, x, dx, microbatch, dtype));
    dx = TensorView{nullptr, dtype, layer->output_shape(x.shape)};
    x = dx;
  }
  return flops;
}

double flops_per_sample(const Model& model) {
  if (model.stated_flops_per_sample > 0) return model.stated_flops_per_sample;
  const std::vector<double> flops = count_flops(model, 1);
  return std::accumulate(flops.begin(), flops.end(), 0.0);
}

}  // namespace trivet::model
