// Host memory beside a device that has its own: where master weights and optimizer states lie when they are offloaded, and
// where they are updated (ZeRO-Offload, Ren et al. 2021). Gradients come down, new weights go up, sub-group by sub-group.
//
//   device   gradients ---read---.                       .---write--> weights
//   host                 staging -> kernels of the host -> staging
//                                   master weights, states (host memory, or staged from a file)
//
// On the CPU backend nothing is apart, and there is none.
#pragma once

#include "core/arena.h"
#include "kernels/kernels.h"
#include "zero/placement.h"

namespace trivet::zero {

class HostSide {
 public:
  virtual ~HostSide() = default;
  virtual kernels::Kernels& kernels() = 0;  // that reach host memory
  virtual Allocator& allocator() = 0;       // of host memory that the device copies from and to at full speed
  virtual MemoryMeter& meter() = 0;         // of host memory
  virtual Arena& staging() = 0;             // of host memory
  // Between the device and the host; of one dtype and size. What the device's kernels were given before is done before the
  // copy; what they are given after wait() comes after it.
  virtual Transfer to_host(ConstTensorView device, TensorView host) = 0;
  virtual Transfer from_host(ConstTensorView host, TensorView device) = 0;
};

// By the device's own Kernels::to_host and from_host; each copy is done when the call returns. `staging_bytes`: as the
// planner's had at its peak. What is referred to outlives it.
struct HostSideOptions {
  kernels::Kernels& device;
  kernels::Kernels& host;
  Allocator& allocator;
  int64_t staging_bytes = 0;
};
std::unique_ptr<HostSide> make_host_side(const HostSideOptions& options);
// On Device::Meta, with an arena without limit.
std::unique_ptr<HostSide> make_meta_host_side(kernels::Kernels& meta);

// A tensor in host memory: kernels of the host need no copy of it.
class HostTensor final : public TensorPlace {
 public:
  HostTensor(HostSide& side, DType dtype, int64_t elements);
  DType dtype() const override { return memory_.view().dtype; }
  int64_t elements() const override { return memory_.view().elements(); }
  int64_t granule_elements() const override { return 1; }
  TensorView host_memory() override { return memory_.view(); }
  Transfer read(int64_t first, TensorView to) override;
  Transfer write(int64_t first, ConstTensorView from) override;

 private:
  HostSide& side_;
  Buffer memory_;
};

// A tensor of the device, seen from the host.
class DeviceTensor final : public TensorPlace {
 public:
  DeviceTensor(HostSide& side, TensorView tensor) : side_(side), tensor_(tensor) {}
  DType dtype() const override { return tensor_.dtype; }
  int64_t elements() const override { return tensor_.elements(); }
  int64_t granule_elements() const override { return 1; }
  Transfer read(int64_t first, TensorView to) override { return side_.to_host(tensor_.slice(first, to.elements()), to); }
  Transfer write(int64_t first, ConstTensorView from) override {
    return side_.from_host(from, tensor_.slice(first, from.elements()));
  }

 private:
  HostSide& side_;
  TensorView tensor_;
};

}  // namespace trivet::zero
