#include "zero/host_and_device_tensors.h"

#include <utility>

#include "zero/staging.h"

namespace trivet::zero {
namespace {

// A copy that the host's thread waits for.
class HostWaits final : public PendingCopy::State {
 public:
  explicit HostWaits(Event copied) : copied_(std::move(copied)) {}
  void wait() override { copied_.wait_on_host(); }

 private:
  Event copied_;
};

// A copy that the device's kernels wait for.
class KernelsWait final : public PendingCopy::State {
 public:
  explicit KernelsWait(Event copied) : copied_(std::move(copied)) {}
  void wait() override { copied_.synchronize(); }

 private:
  Event copied_;
};

PendingCopy for_host(Event copied) { return PendingCopy(std::make_shared<HostWaits>(std::move(copied))); }
PendingCopy for_device(Event copied) { return PendingCopy(std::make_shared<KernelsWait>(std::move(copied))); }

// Reads the file into staging memory at once, and copies that to the device in wait().
class FileToDevice final : public PendingCopy::State {
 public:
  FileToDevice(HostSide& side, StagedTensor& file, int64_t first, TensorView to)
      : side_(side),
        to_(to),
        memory_(side.staging(), to.bytes()),
        staged_(memory_.tensor(0, to.dtype, to.elements())),
        read_(file.read(first, staged_)) {}
  void wait() override {
    if (done_) return;
    read_.wait();
    side_.from_host(staged_, to_).wait_on_host();
    memory_ = {};
    done_ = true;
  }

 private:
  HostSide& side_;
  TensorView to_;
  StagingMemory memory_;
  TensorView staged_;
  PendingCopy read_;
  bool done_ = false;
};

// Copies from the device to staging memory at once, and writes that to the file in wait().
class DeviceToFile final : public PendingCopy::State {
 public:
  DeviceToFile(HostSide& side, ConstTensorView from, StagedTensor& file, int64_t first)
      : file_(file),
        first_(first),
        memory_(side.staging(), from.bytes()),
        staged_(memory_.tensor(0, from.dtype, from.elements())),
        copied_(side.to_host(from, staged_)) {}
  void wait() override {
    if (done_) return;
    copied_.wait_on_host();
    file_.write(first_, staged_).wait();
    memory_ = {};
    done_ = true;
  }

 private:
  StagedTensor& file_;
  int64_t first_;
  StagingMemory memory_;
  TensorView staged_;
  Event copied_;
  bool done_ = false;
};

}  // namespace

// ---- tensors in host memory

HostTensor::HostTensor(HostSide& side, MemoryCategory category, DType dtype, int64_t elements)
    : side_(side), memory_(side.allocator(), side.meter(), category, dtype, {elements}) {}

TensorView HostTensor::host_memory() {
  used_.wait_on_host();
  used_ = {};
  return memory_.view();
}

PendingCopy HostTensor::read(int64_t first, TensorView to) {
  side_.kernels().copy(host_memory().slice(first, to.elements()), to);
  return {};
}

PendingCopy HostTensor::write(int64_t first, ConstTensorView from) {
  side_.kernels().copy(from, host_memory().slice(first, from.elements()));
  return {};
}

Event HostTensor::copy_up(int64_t first, TensorView to) {
  return used_ = side_.from_host(memory_.view().slice(first, to.elements()), to);
}

Event HostTensor::copy_down(ConstTensorView from, int64_t first) {
  return used_ = side_.to_host(from, memory_.view().slice(first, from.elements()));
}

void HostTensor::copy_up_on(Stream& stream, TensorView to) {
  stream.enqueue([this, to] { side_.device().copy_pinned(memory_.view(), to); });
  used_ = stream.record();
}

// ---- tensors seen from the other side

PendingCopy DeviceTensor::read(int64_t first, TensorView to) {
  return for_host(side_.to_host(tensor_.slice(first, to.elements()), to));
}

PendingCopy DeviceTensor::write(int64_t first, ConstTensorView from) {
  return for_host(side_.from_host(from, tensor_.slice(first, from.elements())));
}

PendingCopy HostTensorOnDevice::read(int64_t first, TensorView to) { return for_device(tensor_.copy_up(first, to)); }
PendingCopy HostTensorOnDevice::write(int64_t first, ConstTensorView from) {
  return for_device(tensor_.copy_down(from, first));
}

PendingCopy FileTensorOnDevice::read(int64_t first, TensorView to) {
  return PendingCopy(std::make_shared<FileToDevice>(side_, file_, first, to));
}

PendingCopy FileTensorOnDevice::write(int64_t first, ConstTensorView from) {
  return PendingCopy(std::make_shared<DeviceToFile>(side_, from, file_, first));
}

}  // namespace trivet::zero
