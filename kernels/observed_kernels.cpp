#include "kernels/observed_kernels.h"

#include "kernels/kernels.h"

namespace trivet::kernels {
namespace {

class ObservedKernels final : public Kernels {
 public:
  ObservedKernels(Kernels& inner, KernelObserver& observer) : inner_(inner), observer_(observer) {}

  Device device() const override { return inner_.device(); }
  Counters counters() const override { return inner_.counters(); }

  void run(const KernelArguments& arguments) override {
    std::visit([](const auto* kernel) { kernel->check(); }, arguments);
    if (const auto* product = std::get_if<const Matmul*>(&arguments)) observer_.asked(**product);
    const KernelCall call = std::visit([](const auto* kernel) { return kernel->describe(); }, arguments);
    observer_.begins();
    inner_.run(arguments);
    observer_.ended(call);
  }

  void from_host(ConstTensorView from, TensorView out) override { inner_.from_host(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { inner_.to_host(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { inner_.copy_pinned(from, out); }

 private:
  Kernels& inner_;
  KernelObserver& observer_;
};

}  // namespace

std::unique_ptr<Kernels> make_observed_kernels(Kernels& inner, KernelObserver& observer) {
  return std::make_unique<ObservedKernels>(inner, observer);
}

}  // namespace trivet::kernels
