// What tests can plant in the fake cuBLASLt and ask of it. See cublasLt.h.
#pragma once

#include <cublasLt.h>

namespace cuda_shim {

// From now on the heuristic knows no algorithm for products with a bias (as for shapes that the real one does not take).
void forget_bias_algorithms(bool forget);
// The same for epilogues with a GELU.
void forget_gelu_algorithms(bool forget);
// How often products with a GELU in their epilogue were run.
int gelu_epilogues();
// How often the heuristic has been asked since the process started.
int heuristics_asked();

}  // namespace cuda_shim
