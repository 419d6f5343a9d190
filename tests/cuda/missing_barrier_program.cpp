// What a missing __syncthreads looks like (scripts/show_missing_barrier): missing_barrier kept|removed
//
// Every thread passes its number to its neighbour through shared memory. Without the barrier the fibers of the fake device, run
// in order, still give the right numbers; ThreadSanitizer reports the access that nothing orders.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "core/cuda/launch.h"

namespace {

template <bool kBarrier>
__global__ void pass_to_neighbour(int* out) {
  __shared__ int numbers[64];
  const int i = static_cast<int>(threadIdx.x);
  numbers[i] = i;
  if constexpr (kBarrier) __syncthreads();
  out[i] = i > 0 ? numbers[i - 1] : 0;
}

}  // namespace

int main(int count, char** arguments) {
  const bool removed = count == 2 && std::strcmp(arguments[1], "removed") == 0;
  int *device = nullptr, host[64];
  CUDA_CHECK(cudaMalloc(&device, sizeof host));
  TRIVET_LAUNCH(removed ? pass_to_neighbour<false> : pass_to_neighbour<true>, 1, 64, 0, nullptr, device);
  CUDA_CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
  CUDA_CHECK(cudaFree(device));
  int wrong = 0;
  for (int i = 1; i < 64; ++i) wrong += host[i] != i - 1;
  std::printf("barrier %s: %d of 64 numbers are wrong\n", removed ? "removed" : "kept", wrong);
}
