// Staged tensors next to a device that has its own memory (zero/host_side.h), as the device and the host see them.
//
//   kept                the host's kernels     the device's kernels
//   on the device       DeviceTensor           (use it where it is)
//   in host memory      HostTensor             HostTensorOnDevice
//   in a file           offload::FileTensor    FileTensorOnDevice
#pragma once

#include "core/buffer.h"
#include "core/stream.h"
#include "zero/host_side.h"
#include "zero/placement.h"

namespace trivet::zero {

// A tensor in page-locked host memory. The device accesses it asynchronously: host code waits for the last access before it
// touches the tensor. The compute stream orders the device's accesses, so each one follows those before it.
class HostTensor final : public StagedTensor {
 public:
  HostTensor(HostSide& side, MemoryCategory category, DType dtype, int64_t elements);
  DType dtype() const override { return memory_.view().dtype; }
  int64_t elements() const override { return memory_.view().elements(); }
  int64_t granule_elements() const override { return 1; }
  TensorView host_memory() override;
  PendingCopy read(int64_t first, TensorView to) override;
  PendingCopy write(int64_t first, ConstTensorView from) override;

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
class DeviceTensor final : public StagedTensor {
 public:
  DeviceTensor(HostSide& side, TensorView tensor) : side_(side), tensor_(tensor) {}
  DType dtype() const override { return tensor_.dtype; }
  int64_t elements() const override { return tensor_.elements(); }
  int64_t granule_elements() const override { return 1; }
  PendingCopy read(int64_t first, TensorView to) override;
  PendingCopy write(int64_t first, ConstTensorView from) override;

 private:
  HostSide& side_;
  TensorView tensor_;
};

// A tensor that is kept elsewhere, seen from the device: it is staged in device memory.
class SeenFromDevice : public StagedTensor {
 public:
  explicit SeenFromDevice(StagedTensor& home) : home_(home) {}
  DType dtype() const override { return home_.dtype(); }
  int64_t elements() const override { return home_.elements(); }
  int64_t granule_elements() const override { return home_.granule_elements(); }
  StagedTensor& on_host() override { return home_; }

 private:
  StagedTensor& home_;
};

// A tensor in host memory: wait() makes the device's kernels wait, not the host.
class HostTensorOnDevice final : public SeenFromDevice {
 public:
  explicit HostTensorOnDevice(HostTensor& tensor) : SeenFromDevice(tensor), tensor_(tensor) {}
  PendingCopy read(int64_t first, TensorView to) override;
  PendingCopy write(int64_t first, ConstTensorView from) override;

 private:
  HostTensor& tensor_;
};

// A tensor in a file: copies go through the host's staging memory, and wait() blocks the host.
class FileTensorOnDevice final : public SeenFromDevice {
 public:
  FileTensorOnDevice(HostSide& side, StagedTensor& file) : SeenFromDevice(file), side_(side), file_(file) {}
  PendingCopy read(int64_t first, TensorView to) override;
  PendingCopy write(int64_t first, ConstTensorView from) override;

 private:
  HostSide& side_;
  StagedTensor& file_;
};

}  // namespace trivet::zero
