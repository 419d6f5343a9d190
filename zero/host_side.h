// Host memory next to a device that has its own memory. Offloaded weights, master weights and optimizer states are kept there,
// and the states are updated there (ZeRO-Offload, Ren et al. 2021). Gradients are copied down and new weights are copied up,
// sub-group by sub-group, on two streams:
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
#include "kernels/kernels.h"
#include "zero/placement.h"
#include "zero/staging.h"

namespace trivet::zero {

// Everything referred to must outlive the HostSide.
struct HostSideOptions {
  kernels::Kernels& device;          // copies between device and host
  kernels::Kernels& host;            // works on host memory
  Allocator& allocator;              // of host memory that the device copies from and to at full speed
  std::unique_ptr<Stream> to, from;  // of the device: for copies to the host and from it
  int64_t staging_bytes = 0;         // the peak that the planner found
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
  MemoryMeter& meter() { return meter_; }  // of host memory
  Arena& staging() { return staging_; }    // of host memory
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
  Arena staging_;
};

// A tensor in page-locked host memory. The device accesses it asynchronously: host code waits for the last access before it
// touches the tensor. The compute stream orders the device's accesses, so each one follows those before it.
class HostTensor final : public TensorPlace {
 public:
  HostTensor(HostSide& side, MemoryCategory category, DType dtype, int64_t elements);
  DType dtype() const override { return memory_.view().dtype; }
  int64_t elements() const override { return memory_.view().elements(); }
  int64_t granule_elements() const override { return 1; }
  TensorView host_memory() override;
  Transfer read(int64_t first, TensorView to) override;
  Transfer write(int64_t first, ConstTensorView from) override;

  // Copy to and from device memory, in the order of the device's kernels.
  Event copy_up(int64_t first, TensorView to);
  Event copy_down(ConstTensorView from, int64_t first);
  // Copies all of it to the device, on `stream`.
  void copy_up_on(Stream& stream, TensorView to);

 private:
  HostSide& side_;
  Buffer memory_;
  Event used_;  // the device's last access
};

// A tensor on the device, seen from the host.
class DeviceTensor final : public TensorPlace {
 public:
  DeviceTensor(HostSide& side, TensorView tensor) : side_(side), tensor_(tensor) {}
  DType dtype() const override { return tensor_.dtype; }
  int64_t elements() const override { return tensor_.elements(); }
  int64_t granule_elements() const override { return 1; }
  Transfer read(int64_t first, TensorView to) override;
  Transfer write(int64_t first, ConstTensorView from) override;

 private:
  HostSide& side_;
  TensorView tensor_;
};

// A tensor on the host, seen from the device: transfers run between it and device memory, and wait() makes the device's kernels
// wait, not the host.
class HostTensorOnDevice final : public TensorPlace {
 public:
  explicit HostTensorOnDevice(HostTensor& tensor) : tensor_(tensor) {}
  DType dtype() const override { return tensor_.dtype(); }
  int64_t elements() const override { return tensor_.elements(); }
  int64_t granule_elements() const override { return 1; }
  Transfer read(int64_t first, TensorView to) override;
  Transfer write(int64_t first, ConstTensorView from) override;
  TensorPlace& on_host() override { return tensor_; }

 private:
  HostTensor& tensor_;
};

// A tensor in a file, seen from the device: transfers go through the host's staging memory, and wait() blocks the host.
class FileTensorOnDevice final : public TensorPlace {
 public:
  FileTensorOnDevice(HostSide& side, TensorPlace& file) : side_(side), file_(file) {}
  DType dtype() const override { return file_.dtype(); }
  int64_t elements() const override { return file_.elements(); }
  int64_t granule_elements() const override { return file_.granule_elements(); }
  Transfer read(int64_t first, TensorView to) override;
  Transfer write(int64_t first, ConstTensorView from) override;
  TensorPlace& on_host() override { return file_; }

 private:
  HostSide& side_;
  TensorPlace& file_;
};

}  // namespace trivet::zero
