// Lets tests change how the fake cuBLASLt behaves, and ask what it has done. See cublasLt.h.
#pragma once

#include <cublasLt.h>

namespace cuda_shim {

// If `forget` is true, the heuristic knows no algorithm for products with a bias, as the real one knows none for some shapes.
void forget_bias_algorithms(bool forget);
// Does the same for epilogues with a GELU.
void forget_gelu_algorithms(bool forget);
// How often products with a GELU in their epilogue were run.
int gelu_epilogues();
// How often the heuristic has been asked since the process started.
int heuristics_asked();

}  // namespace cuda_shim
