// First estimates of the memory that a model's states need, as DeepSpeed's users know them. A Plan counts what the engine will
// really hold.
#pragma once

#include <cstdint>

namespace trivet::autotune {

// Options of DeepSpeed's estimators (estimate_zero2_model_states_mem_needs, estimate_zero3_model_states_mem_needs), by
// the formulas of its code; its documentation has tables of an older version. Activations and buffers are not included.
struct EstimatorOptions {
  double parameters = 0;
  double largest_layer_parameters = 0;  // stage 3
  int64_t gpus_per_node = 1, nodes = 1;
  bool offload_optimizer = false, offload_parameters = false;  // parameters: stage 3 only, and with the optimizer
  bool zero_init = true;                                       // stage 3: weights are created sharded
  double buffer_factor = 1.5;                                  // multiplies host memory
};
struct MemoryEstimate {
  double host_bytes = 0;  // per node
  double gpu_bytes = 0;   // per GPU
};
MemoryEstimate estimate_zero2(const EstimatorOptions& options);
MemoryEstimate estimate_zero3(const EstimatorOptions& options);

}  // namespace trivet::autotune
