#include "autotune/model_states.h"

#include <algorithm>
#include <cmath>

namespace trivet::autotune {

// 18 bytes: a gradient in 16 bits and one in 32, master weights, two moments.
MemoryEstimate estimate_zero2(const EstimatorOptions& o) {
  const double gpus = static_cast<double>(o.gpus_per_node * o.nodes);
  if (o.offload_optimizer) return {o.parameters * std::max(4 * gpus, 16.0) * o.buffer_factor, 2 * o.parameters};
  return {o.parameters * 4 * static_cast<double>(o.gpus_per_node) * o.buffer_factor,
          2 * o.parameters + std::floor(18 * o.parameters / gpus)};
}

MemoryEstimate estimate_zero3(const EstimatorOptions& o) {
  const double gpus = static_cast<double>(o.gpus_per_node * o.nodes), of_a_node = 1.0 / static_cast<double>(o.nodes);
  const double made_whole = 4 * static_cast<double>(o.gpus_per_node);  // float32, once for each process of the node
  const double layer = 4 * o.largest_layer_parameters;                 // 16-bit weights and gradients, whole
  if (!o.offload_optimizer) {
    const double made = o.zero_init ? o.largest_layer_parameters : o.parameters;
    return {made * made_whole * o.buffer_factor, layer + std::floor(18 * o.parameters / gpus)};
  }
  const double kept = (o.offload_parameters ? 18 : 16) * of_a_node;
  return {o.parameters * (o.zero_init ? kept : std::max(made_whole, kept)) * o.buffer_factor,
          layer + (o.offload_parameters ? 0.0 : std::floor(2 * o.parameters / gpus))};
}

}  // namespace trivet::autotune
