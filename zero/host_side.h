// Host memory beside a device that has its own: where weights, master weights and optimizer states lie when they are offloaded,
// and where these states are updated (ZeRO-Offload, Ren et al. 2021). Gradients come down, new weights go up, sub-group by
// sub-group, on two streams of copies:
//
//   to_host     | gradients 0 | gradients 1 | gradients 2 | ...
//   host                      | update 0    | update 1    | update 2 | ...      its kernels, on memory of its own
//   from_host                               | weights 0   | weights 1 | ...
//
// On the CPU backend nothing is apart, and there is none.
#pragma once

#include <memory>

#include "core/arena.h"
#include "core/stream.h"
#include "kernels/kernels.h"
#include "zero/placement.h"
#include "zero/staging.h"

namespace trivet::zero {

// What is referred to outlives the HostSide.
struct HostSideOptions {
  kernels::Kernels& device;          // copies between the two
  kernels::Kernels& host;            // reaches host memory
  Allocator& allocator;              // of host memory that the device copies from and to at full speed
  std::unique_ptr<Stream> to, from;  // of the device: copies to the host, from it
  int64_t staging_bytes = 0;         // as the planner's had at its peak
};

// One thread at a time.
class HostSide {
 public:
  explicit HostSide(HostSideOptions options);
  // On Device::Meta, with an arena without limit.
  explicit HostSide(kernels::Kernels& meta);

  kernels::Kernels& kernels() { return host_; }
  kernels::Kernels& device() { return device_; }
  Allocator& allocator() { return allocator_; }
  MemoryMeter& meter() { return meter_; }  // of host memory
  Arena& staging() { return staging_; }    // of host memory
  // Copies of one dtype and size. What the device's kernels were given before is done before the copy begins. Behind the event
  // it is done: wait_on_host() for what the host does next, synchronize() for what the device's kernels do.
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

// A tensor in host memory, page-locked. The device's accesses to it are asynchronous: who touches it on the host waits for the
// last one, and each comes behind those before it, as they are all ordered by the compute stream.
class HostTensor final : public TensorPlace {
 public:
  HostTensor(HostSide& side, MemoryCategory category, DType dtype, int64_t elements);
  DType dtype() const override { return memory_.view().dtype; }
  int64_t elements() const override { return memory_.view().elements(); }
  int64_t granule_elements() const override { return 1; }
  TensorView host_memory() override;
  Transfer read(int64_t first, TensorView to) override;
  Transfer write(int64_t first, ConstTensorView from) override;

  // From and to memory of the device, in the order of its kernels.
  Event copy_up(int64_t first, TensorView to);
  Event copy_down(ConstTensorView from, int64_t first);
  // All of it, by work on `stream`.
  void copy_up_on(Stream& stream, TensorView to);

 private:
  HostSide& side_;
  Buffer memory_;
  Event used_;  // by the device
};

// A tensor of the device, seen from the host.
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

// A tensor of the host, seen from the device: transfers are between it and the device's memory, and wait() holds the device's
// kernels, not the host.
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

// A tensor in a file, seen from the device: through the staging memory of the host, which waits.
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
