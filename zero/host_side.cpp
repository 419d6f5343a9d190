#include "zero/host_side.h"

namespace trivet::zero {
namespace {

class BlockingHostSide final : public HostSide {
 public:
  explicit BlockingHostSide(const HostSideOptions& options)
      : device_(options.device),
        host_(options.host),
        allocator_(options.allocator),
        staging_("host staging", allocator_, meter_, MemoryCategory::Buffers, options.staging_bytes) {}
  BlockingHostSide(kernels::Kernels& meta, Allocator& allocator)
      : device_(meta), host_(meta), allocator_(allocator), staging_("host staging") {}

  kernels::Kernels& kernels() override { return host_; }
  Allocator& allocator() override { return allocator_; }
  MemoryMeter& meter() override { return meter_; }
  Arena& staging() override { return staging_; }
  Transfer to_host(ConstTensorView device, TensorView host) override {
    device_.to_host(device, host);
    return {};
  }
  // A copy out of page-locked memory reads it after from_host has returned; to_host waits for all before it.
  Transfer from_host(ConstTensorView host, TensorView device) override {
    if (device.elements() == 0) return {};
    device_.from_host(host, device);
    std::byte last[sizeof(int64_t)];
    device_.to_host(device.slice(device.elements() - 1, 1), {last, device.dtype, {1}});
    return {};
  }

 private:
  kernels::Kernels &device_, &host_;
  Allocator& allocator_;
  MemoryMeter meter_;
  Arena staging_;
};

}  // namespace

std::unique_ptr<HostSide> make_host_side(const HostSideOptions& options) { return std::make_unique<BlockingHostSide>(options); }

std::unique_ptr<HostSide> make_meta_host_side(kernels::Kernels& meta) {
  return std::make_unique<BlockingHostSide>(meta, meta_allocator());
}

HostTensor::HostTensor(HostSide& side, DType dtype, int64_t elements)
    : side_(side), memory_(side.allocator(), side.meter(), MemoryCategory::Optimizer, dtype, {elements}) {}

Transfer HostTensor::read(int64_t first, TensorView to) {
  side_.kernels().copy(memory_.view().slice(first, to.elements()), to);
  return {};
}

Transfer HostTensor::write(int64_t first, ConstTensorView from) {
  side_.kernels().copy(from, memory_.view().slice(first, from.elements()));
  return {};
}

}  // namespace trivet::zero
