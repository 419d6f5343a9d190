// The meta kernels compute nothing and touch no memory. They check the arguments as every device does, and count what a call
// would cost.
#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/rules.h"
#include "kernels/workspace.h"

namespace trivet::kernels {
namespace {

class MetaKernels final : public Kernels {
 public:
  Device device() const override { return Device::Meta; }
  Counters counters() const override { return counters_; }

  void run(const KernelArguments& arguments) override {
    std::visit([this](const auto* kernel) { count(*kernel); }, arguments);
  }

  void from_host(ConstTensorView from, TensorView out) override { check_host_copy(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { check_host_copy(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { check_host_copy(from, out); }

 private:
  template <typename Args>
  void count(const Args& args) {
    args.check();
    const KernelCall call = args.describe();
    counters_.flops += call.flops;
    counters_.bytes += call.bytes;
    ++counters_.launches;
    if constexpr (requires { workspace_bytes(args); })  // workspace that a GPU would need
      counters_.workspace_bytes = std::max(counters_.workspace_bytes, workspace_bytes(args));
    if constexpr (requires { thread_scratch_bytes(args); })  // what each thread of a CPU would need
      counters_.thread_scratch_bytes = std::max(counters_.thread_scratch_bytes, thread_scratch_bytes(args));
  }

  Counters counters_;
};

}  // namespace

std::unique_ptr<Kernels> make_meta_kernels() { return std::make_unique<MetaKernels>(); }

}  // namespace trivet::kernels
