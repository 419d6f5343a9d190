// The CPU, for tests that run on every device.
#include "tests/kernels/every_device.h"

namespace trivet::kernels {
namespace {

class CpuTestDevice final : public TestDevice {
 public:
  std::string name() const override { return "cpu"; }
  std::unique_ptr<Kernels> make_kernels() const override { return make_cpu_kernels(2); }
  void every_way(const std::function<void(Kernels&)>& use) const override { for_each_way_of_the_cpu(use); }
};

const CpuTestDevice kCpu;
INSTANTIATE_TEST_SUITE_P(, KernelsOnEveryDevice, testing::Values(&kCpu), device_name);

}  // namespace
}  // namespace trivet::kernels
