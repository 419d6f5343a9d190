// A CUDA device, for the tests of tests/kernels that run on every device.
#include "kernels/workspace.h"
#include "tests/cuda/device_tensor.h"
#include "tests/kernels/every_device.h"

#if __has_include("shim.h")  // on the fake device
#include "shim.h"
#endif

namespace trivet::kernels {
namespace {

// Memory for the device and for the host: kernels and tests use the same tensors.
class ManagedMemory final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {
    void* memory = nullptr;
    CUDA_CHECK(cudaMallocManaged(&memory, bytes));
    return memory;
  }
  void do_deallocate(void* memory, size_t, size_t) override { cudaFree(memory); }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

// While it exists, the host crashes if it accesses a tensor, as it would with one in device memory.
struct OnlyForTheDevice {
#if __has_include("shim.h")
  OnlyForTheDevice() { cuda_shim::hide_managed_memory(true); }
  ~OnlyForTheDevice() { cuda_shim::hide_managed_memory(false); }
#else
  OnlyForTheDevice() {}
#endif
};

// Each call has a workspace of exactly the size that it needs, full of NaN, and waits for the device.
class SynchronousKernels final : public Kernels {
 public:
  Device device() const override { return Device::Cuda; }
  void run(const KernelArguments& arguments) override {
    std::visit([this](const auto* args) { run_one(*args); }, arguments);
  }
  void from_host(ConstTensorView from, TensorView out) override { copy_pinned(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { copy_pinned(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override {
    CUDA_CHECK(cudaMemcpy(out.data, from.data, static_cast<size_t>(from.bytes()), cudaMemcpyDefault));
  }

 private:
  template <typename Args>
  void run_one(const Args& args) {
    args.check();
    int64_t bytes = 0;
    if constexpr (requires { workspace_bytes(args); }) bytes = workspace_bytes(args);
    // A product's workspace is too large to be filled each time.
    const TestLaunch launch(bytes < kCublasWorkspaceBytes ? bytes : 0);
    cuda::Launch with = launch.launch();
    if (bytes >= kCublasWorkspaceBytes) with.workspace = end_of_large_workspace(bytes);
    {
      const OnlyForTheDevice only;
      cuda::compute(args, with);
    }
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  // Ends with the memory, so that a write past its end is found when the memory is freed.
  TensorView end_of_large_workspace(int64_t bytes) {
    constexpr int64_t kBytes = kCublasWorkspaceBytes + (int64_t{8} << 20);
    if (bytes > kBytes) throw std::logic_error("test: raise kBytes");
    if (!large_) large_ = std::make_unique<DeviceTensor>(HostTensor(DType::UInt8, {kBytes}));
    return {static_cast<std::byte*>(large_->view().data) + kBytes - bytes, DType::UInt8, {bytes}};
  }

  std::unique_ptr<DeviceTensor> large_;
};

class CudaTestDevice final : public TestDevice {
 public:
  explicit CudaTestDevice(bool anywhere) : anywhere_(anywhere) {}
  std::string name() const override { return anywhere_ ? "cuda_unaligned" : "cuda"; }
  std::unique_ptr<Kernels> make_kernels() const override { return std::make_unique<SynchronousKernels>(); }
  std::pmr::memory_resource* memory() const override {
    static ManagedMemory memory;
    return &memory;
  }
  bool tensors_begin_anywhere() const override { return anywhere_; }
#if __has_include("shim.h")
  void every_way(const std::function<void(Kernels&)>& use) const override {
    using cuda_shim::Order;
    for (const Order order : anywhere_ ? std::vector{Order::Reversed} : std::vector{Order::InOrder, Order::Shuffled}) {
      cuda_shim::Configuration configuration = cuda_shim::configuration();
      configuration.order = order;
      const cuda_shim::Configured configured(configuration);
      use(*make_kernels());
    }
  }
  int64_t most_elements() const override { return 20000; }
#else
  void every_way(const std::function<void(Kernels&)>& use) const override { use(*make_kernels()); }
#endif

 private:
  bool anywhere_;
};

const CudaTestDevice kAligned(false), kAnywhere(true);
INSTANTIATE_TEST_SUITE_P(, KernelsOnEveryDevice, testing::Values(&kAligned, &kAnywhere), device_name);

}  // namespace
}  // namespace trivet::kernels
