#include "zero/staging.h"

#include <algorithm>

namespace trivet::zero {

StagingRing::StagingRing(Allocator& allocator, MemoryMeter& meter, int64_t buffers, int64_t buffer_bytes) {
  for (int64_t i = 0; i < buffers; ++i)
    slots_.push_back({Buffer(allocator, meter, MemoryCategory::Buffers, DType::UInt8, {staging_bytes(buffer_bytes)}), {}, {}});
}

// After an error reads may still be under way into this memory.
StagingRing::~StagingRing() {
  for (const Slot& slot : slots_) {
    try {
      slot.transfer.wait();
    } catch (...) {
    }
  }
}

void StagingRing::read(TensorPlace& from, TensorView to, Stream& stream, kernels::Kernels& kernels) {
  for (int64_t first = 0; first < to.elements();) {
    Slot& slot = slots_[next_++ % slots_.size()];
    slot.copied.synchronize();
    const int64_t count = std::min(to.elements() - first, slot.memory.view().bytes() / size_of(to.dtype));
    const TensorView staging{slot.memory.view().data, to.dtype, {count}}, part = to.slice(first, count);
    slot.transfer = from.read(first, staging);
    stream.enqueue([transfer = slot.transfer, staging, part, &kernels] {
      transfer.wait();
      kernels.copy(staging, part);
    });
    slot.copied = stream.record();
    first += count;
  }
}

ConstTensorView PlaceReader::read(TensorPlace& place, int64_t first, int64_t count) {
  const int64_t granule = place.granule_elements(), size = size_of(place.dtype());
  const int64_t begin = first / granule * granule;
  const int64_t end = std::min((first + count + granule - 1) / granule * granule, place.elements());
  const int64_t bytes = staging_bytes((end - begin) * size);
  if (memory_.empty() || memory_.view().bytes() < bytes) {
    memory_.reset();
    memory_ = Buffer(host_allocator(), meter_, MemoryCategory::Buffers, DType::UInt8, {bytes});
  }
  const TensorView staging{memory_.view().data, place.dtype(), {end - begin}};
  place.read(begin, staging).wait();
  return ConstTensorView(staging).slice(first - begin, count);
}

}  // namespace trivet::zero
