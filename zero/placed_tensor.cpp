#include "zero/placed_tensor.h"

#include "zero/offload/file_tensor.h"
#include "zero/staging.h"

namespace trivet::zero {

PlacedTensor::PlacedTensor(const PlacedTensorOptions& options, const Resources& resources)
    : dtype_(options.dtype), elements_(options.elements) {
  const OffloadResources& offload = resources.offload;
  if (options.placement == Placement::Device) {
    memory_ = Buffer(resources.allocator, resources.meter, options.category, dtype_, {elements_});
  } else if (options.placement == Placement::Host) {
    auto in_host_memory = std::make_unique<HostTensor>(*offload.host, options.category, dtype_, elements_);
    in_host_memory_ = in_host_memory.get();
    home_ = std::move(in_host_memory);
    seen_by_device_ = std::make_unique<HostTensorOnDevice>(*in_host_memory_);
  } else {
    offload::FileStore& files = options.category == MemoryCategory::Parameters ? *offload.weights : *offload.states;
    home_ = std::make_unique<offload::FileTensor>(files, dtype_, elements_);
    if (offload.host) seen_by_device_ = std::make_unique<FileTensorOnDevice>(*offload.host, *home_);
  }
}

TensorView PlacedTensor::view() { return home_ ? TensorView{nullptr, dtype_, {elements_}} : memory_.view(); }
ConstTensorView PlacedTensor::view() const { return home_ ? ConstTensorView{nullptr, dtype_, {elements_}} : memory_.view(); }

void PlacedTensor::show_to_host(HostSide& host, int64_t first, int64_t count) {
  if (on_device()) seen_by_host_ = std::make_unique<DeviceTensor>(host, view().slice(first, count));
}

PlacedView PlacedTensor::seen_by(const HostSide* host, int64_t first, int64_t count) {
  if (elements_ == 0) return {};
  StagedTensor* const other = host ? seen_by_host_.get() : seen_by_device_.get();
  return {view().slice(first, count), other ? other : home_.get()};
}

void PlacedTensor::copy_to(TensorView to, Stream& stream, const Resources& resources) {
  if (in_host_memory_)
    in_host_memory_->copy_up_on(stream, to);
  else
    resources.offload.gathers->read(*home_, to, stream, resources.kernels);
}

void PlacedTensor::use_on_device(int64_t first, int64_t count, bool written, Arena& buffers,
                                 const std::function<void(TensorView)>& use) {
  const PlacedView seen = seen_by(nullptr, first, count);
  if (!seen.staged) return use(seen);
  const StagingMemory memory(buffers, seen.bytes());
  const TensorView copy = memory.tensor(0, seen.dtype, count);
  if (!written) seen.staged->read(first, copy).wait();
  use(copy);
  if (written) seen.staged->write(first, copy).wait();
}

}  // namespace trivet::zero
