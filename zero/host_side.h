// Host memory next to a device that has its own memory. Offloaded weights, master weights and optimizer states are kept there,
// and the states are updated there (ZeRO-Offload, Ren et al. 2021). Gradients are copied down and new weights are copied up,
// sub-group by sub-group, on two streams, which also move activations there and back (engine/executor.h):
//
//   to_host     | gradients 0 | gradients 1 | gradients 2 | ...
//   host                      | update 0    | update 1    | update 2 | ...      the host's kernels, on host memory
//   from_host                               | weights 0   | weights 1 | ...
//
// The CPU backend has no separate device memory, and so no HostSide.
#pragma once

#include <memory>

#include "core/arena.h"
#include "core/stream.h"
#include "kernels/interface.h"

namespace trivet::zero {

// Everything referred to must outlive the HostSide.
struct HostSideOptions {
  kernels::Kernels& device;          // copies between device and host
  kernels::Kernels& host;            // works on host memory
  Allocator& allocator;              // for host memory that the device copies from and to at full speed
  std::unique_ptr<Stream> to, from;  // the device's, for copies to the host and from it
  int64_t staging_bytes = 0;         // the peak that the planner found
  int64_t activation_bytes = 0;      // likewise
};

// One thread at a time.
class HostSide {
 public:
  explicit HostSide(HostSideOptions options);
  // For the planner: on Device::Meta, with an arena without a limit.
  explicit HostSide(kernels::Kernels& meta);

  kernels::Kernels& kernels() { return host_; }
  kernels::Kernels& device() { return device_; }
  Allocator& allocator() { return allocator_; }
  MemoryMeter& meter() { return meter_; }        // counts host memory
  Arena& staging() { return staging_; }          // host memory
  Arena& activations() { return activations_; }  // host memory
  // Copy between views of the same dtype and size. The copy begins after the work that the device's kernels were given before
  // it. It is done when the event has happened: call wait_on_host() before the host uses the result, synchronize() before the
  // device's kernels do.
  Event to_host(ConstTensorView device, TensorView host);
  Event from_host(ConstTensorView host, TensorView device);

 private:
  Event copy(ConstTensorView from, TensorView to, Stream& stream);

  kernels::Kernels &device_, &host_;
  Allocator& allocator_;
  std::unique_ptr<Stream> to_, from_;
  MemoryMeter meter_;
  Arena staging_, activations_;
};

}  // namespace trivet::zero
