// Measures the ceilings of this GPU (ceilings.h), and copies from and to pinned host memory.
#include "bench/cuda/ceilings.h"
#include "bench/cuda/device_bytes.h"

namespace trivet::cuda {
namespace {

constexpr int64_t kHostBytes = int64_t{256} << 20;

void bench_host_copies(cudaStream_t stream, Timer& timer) {
  const DeviceBytes device(kHostBytes);
  void* host = nullptr;
  CUDA_CHECK(cudaMallocHost(&host, kHostBytes));
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind, const char* name) {
    const double seconds = timer.median_seconds([&](int) { CUDA_CHECK(cudaMemcpyAsync(to, from, kHostBytes, kind, stream)); });
    print_figure(name, 1e-9 * static_cast<double>(kHostBytes) / seconds, "GB/s");
  };
  copy(device.data(), host, cudaMemcpyHostToDevice, "copy from pinned memory");
  copy(host, device.data(), cudaMemcpyDeviceToHost, "copy to pinned memory");
  CUDA_CHECK(cudaFreeHost(host));
}

void run() {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Timer timer(stream);
  print_figure("copy in device memory", 1e-9 * copy_bandwidth(stream, timer), "GB/s");
  print_figure("product of 8192 x 8192 x 8192, bfloat16", 1e-12 * matrix_rate(stream, timer), "TFLOP/s");
  bench_host_copies(stream, timer);
}

}  // namespace
}  // namespace trivet::cuda

int main() { return trivet::cuda::run_bench("peak_bench", trivet::cuda::run); }
