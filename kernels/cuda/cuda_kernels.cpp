#include "kernels/cuda/cuda_kernels.h"

#include <map>
#include <stdexcept>
#include <string>

#include "core/cuda/error.h"
#include "kernels/cuda/host_copies.h"
#include "kernels/cuda/math.h"
#include "kernels/rules.h"
#include "kernels/workspace.h"

namespace trivet::kernels {
namespace {

int multiprocessors_of(int device) {
  int count = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const CudaKernelsOptions& options)
      : options_(options),
        multiprocessors_(multiprocessors_of(options.streams->device())),
        host_copies_(options.streams->device(), options.staging_bytes) {}
  Device device() const override { return Device::Cuda; }

  void run(const KernelArguments& arguments) override {
    std::visit([this](const auto* kernel) { run_one(*kernel); }, arguments);
  }

  void from_host(ConstTensorView from, TensorView out) override {
    check_host_copy(from, out);
    host_copies_.to_device(from.data, out.data, out.bytes(), launch().stream);
  }
  void to_host(ConstTensorView from, TensorView out) override {
    check_host_copy(from, out);
    host_copies_.to_host(from.data, out.data, out.bytes(), launch().stream);
    if (options_.after_wait) options_.after_wait();
  }
  void copy_pinned(ConstTensorView from, TensorView out) override {
    check_host_copy(from, out);
    cuda::HostCopies::pinned(from.data, out.data, out.bytes(), launch().stream);
  }

 private:
  template <typename Args>
  void run_one(const Args& args) {
    args.check();
    cuda::Launch on = launch();
    if constexpr (requires { workspace_bytes(args); }) on.workspace = workspace(on.stream, workspace_bytes(args));
    cuda::compute(args, on);
  }

  cuda::Launch launch() const { return {options_.streams->current(), multiprocessors_, {}}; }

  TensorView workspace(cudaStream_t stream, int64_t bytes) {
    if (bytes == 0) return {};
    if (bytes > options_.workspace_bytes)
      throw std::logic_error("cuda kernels: a kernel needs a workspace of " + std::to_string(bytes) +
                             " bytes, but the plan provides " + std::to_string(options_.workspace_bytes));
    Buffer& memory = workspaces_[stream];
    if (memory.empty())
      memory = Buffer(*options_.allocator, *options_.meter, MemoryCategory::Buffers, DType::UInt8, {options_.workspace_bytes});
    return memory.view();
  }

  const CudaKernelsOptions options_;
  const int multiprocessors_;
  cuda::HostCopies host_copies_;
  std::map<cudaStream_t, Buffer> workspaces_;
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(const CudaKernelsOptions& options) { return std::make_unique<CudaKernels>(options); }

}  // namespace trivet::kernels
