#include "bench/cuda/ceilings.h"

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <stdexcept>

#include "bench/cuda/device_bytes.h"
#include "core/cuda/launch.h"

namespace trivet::cuda {
namespace {

constexpr int64_t kCopyBytes = int64_t{2} << 30;
constexpr int kProduct = 8192;  // rows, columns and depth

void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
}

__global__ void fill(__nv_bfloat16* out, int64_t count, uint32_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    out[i] = __float2bfloat16(static_cast<float>(static_cast<int32_t>(x ^ (x >> 16))) * 4.656612873e-10f);
  }
}

}  // namespace

void fill_bfloat16(void* data, int64_t bytes, uint32_t seed, cudaStream_t stream) {
  TRIVET_LAUNCH(fill, 1024, 256, 0, stream, static_cast<__nv_bfloat16*>(data), bytes / 2, seed);
}

double copy_bandwidth(cudaStream_t stream, Timer& timer) {
  const DeviceBytes from(kCopyBytes), to(kCopyBytes);
  CUDA_CHECK(cudaMemsetAsync(from.data(), 1, kCopyBytes, stream));
  const double seconds = timer.median_seconds(
      [&](int) { CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), kCopyBytes, cudaMemcpyDeviceToDevice, stream)); });
  return 2.0 * static_cast<double>(kCopyBytes) / seconds;
}

double matrix_rate(cudaStream_t stream, Timer& timer) {
  constexpr int64_t kElements = int64_t{kProduct} * kProduct, kWorkspace = 32 << 20;
  const DeviceBytes a(2 * kElements), b(2 * kElements), c(2 * kElements), workspace(kWorkspace);
  fill_bfloat16(a.data(), 2 * kElements, 1, stream);
  fill_bfloat16(b.data(), 2 * kElements, 2, stream);

  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulPreference_t preference;
  check_blas(cublasLtCreate(&handle), "cublasLtCreate");
  check_blas(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_blas(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "TRANSA");
  check_blas(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, kProduct, kProduct, kProduct), "cublasLtMatrixLayoutCreate");
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const size_t bytes = kWorkspace;
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
             "MAX_WORKSPACE_BYTES");
  constexpr int kMost = 8;
  cublasLtMatmulHeuristicResult_t found[kMost];
  int count = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(handle, product, layout, layout, layout, layout, preference, kMost, found, &count),
             "cublasLtMatmulAlgoGetHeuristic");
  const float one = 1, zero = 0;
  double best = 1e30;
  for (int i = 0; i < count; ++i)
    best = std::min(
        best, timer.median_seconds(
                  [&](int) {
                    check_blas(cublasLtMatmul(handle, product, &one, a.data(), layout, b.data(), layout, &zero, c.data(),
                                              layout, c.data(), layout, &found[i].algo, workspace.data(), kWorkspace, stream),
                               "cublasLtMatmul");
                  },
                  7));
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(product);
  cublasLtDestroy(handle);
  return 2.0 * kProduct * static_cast<double>(kElements) / best;
}

}  // namespace trivet::cuda
