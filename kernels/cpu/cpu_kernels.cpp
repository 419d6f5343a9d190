// The CPU's Kernels. Each call checks its arguments and calls the function in kernels/cpu/math.h.
#include <omp.h>

#include <algorithm>

#include "kernels/cpu/math.h"
#include "kernels/kernels.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(int threads) : threads_(threads > 0 ? threads : std::max(1, omp_get_max_threads())) {}
  Device device() const override { return Device::Cpu; }

  void run(const KernelArguments& arguments) override {
    std::visit(
        [this](const auto* kernel) {
          kernel->check();
          cpu::compute(*kernel, threads_);
        },
        arguments);
  }

  void from_host(ConstTensorView from, TensorView out) override { copy_same(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { copy_same(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { copy_same(from, out); }

 private:
  void copy_same(ConstTensorView from, TensorView out) {
    check_host_copy(from, out);
    cpu::compute(Copy{from, out}, threads_);
  }

  int threads_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(int threads) { return std::make_unique<CpuKernels>(threads); }

}  // namespace trivet::kernels
