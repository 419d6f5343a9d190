// Closed formulas for the bytes of a model's states (weights, gradients, optimizer) before anything is run. A Plan counts what
// the engine will really hold; these formulas say what a model of a given size needs in principle, as papers and DeepSpeed's
// users quote it.
#pragma once

#include <cstdint>

namespace trivet::autotune {

// Bytes per parameter. The default is mixed-precision Adam: 16-bit weights and gradients, float32 master weights and two
// moments.
struct StateBytes {
  double weights = 2, gradients = 2, optimizer = 12;
};

// Bytes on one of N data ranks (ZeRO, Rajbhandari et al. 2020, figure 1), with w, g, k bytes per parameter:
//
//   stage 0: w + g + k    1: w + g + k / N    2: w + (g + k) / N    3: (w + g + k) / N
double model_state_bytes(int zero_stage, double parameters, int64_t data_ranks, const StateBytes& bytes = {});

// What DeepSpeed's estimators (estimate_zero2_model_states_mem_needs, estimate_zero3_model_states_mem_needs) say, by the
// formulas of its code; the tables in its documentation are from an older version. Activations and buffers are not included.
struct EstimatorOptions {
  double parameters = 0;
  double largest_layer_parameters = 0;  // stage 3
  int64_t gpus_per_node = 1, nodes = 1;
  bool offload_optimizer = false, offload_parameters = false;  // parameters: stage 3 only, and with the optimizer
  bool zero_init = true;                                       // stage 3: weights are created sharded
  double buffer_factor = 1.5;                                  // multiplies host memory
};
struct Estimate {
  double host_bytes = 0;  // per node
  double gpu_bytes = 0;   // per GPU
};
Estimate estimate_zero2(const EstimatorOptions& options);
Estimate estimate_zero3(const EstimatorOptions& options);

}  // namespace trivet::autotune
