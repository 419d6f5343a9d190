#include "zero/host_side.h"

#include <utility>

namespace trivet::zero {

HostSide::HostSide(HostSideOptions options)
    : device_(options.device),
      host_(options.host),
      allocator_(options.allocator),
      to_(std::move(options.to)),
      from_(std::move(options.from)),
      staging_("host staging", allocator_, meter_, MemoryCategory::Buffers, options.staging_bytes),
      activations_("host activations", allocator_, meter_, MemoryCategory::Activations, options.activation_bytes) {}

HostSide::HostSide(kernels::Kernels& meta)
    : device_(meta),
      host_(meta),
      allocator_(meta_allocator()),
      to_(make_inline_stream()),
      from_(make_inline_stream()),
      staging_("host staging"),
      activations_("host activations") {}

Event HostSide::copy(ConstTensorView from, TensorView to, Stream& stream) {
  stream.enqueue([this, from, to] { device_.copy_pinned(from, to); });
  return stream.record();
}

Event HostSide::to_host(ConstTensorView device, TensorView host) { return copy(device, host, *to_); }
Event HostSide::from_host(ConstTensorView host, TensorView device) { return copy(host, device, *from_); }

}  // namespace trivet::zero
