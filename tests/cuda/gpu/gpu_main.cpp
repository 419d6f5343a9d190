// Runs the tests if there is a GPU; otherwise says why not and exits with code 77.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of CTest

bool gpu_is_there() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return true;
  std::printf("test_gpu: skipped, no GPU can be used here: %s\n",
              error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error));
  return false;
}

void print_gpu() {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return;
  std::printf("test_gpu: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n", properties.name, properties.major,
              properties.minor, properties.multiProcessorCount, static_cast<double>(properties.totalGlobalMem) / (1 << 30));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  // Otherwise a kernel is loaded when it is first launched, which may wait for streams that a test holds (gate.h).
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (!testing::GTEST_FLAG(list_tests)) {
    if (!gpu_is_there()) return kSkipped;
    print_gpu();
  }
  return RUN_ALL_TESTS();
}
