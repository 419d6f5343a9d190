#include "zero/staging.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace trivet::zero {

// Page-locked memory need not begin at a page boundary.
StagingRing::StagingRing(Allocator& allocator, MemoryMeter& meter, int64_t buffers, int64_t buffer_bytes)
    : memory_(allocator, meter, MemoryCategory::Buffers, DType::UInt8,
              {buffers * staging_bytes(buffer_bytes) + kStagingAlignment}),
      slot_bytes_(staging_bytes(buffer_bytes)) {
  const TensorView all = memory_.view();
  const int64_t before = staging_address(all.data) - static_cast<std::byte*>(all.data);
  for (int64_t i = 0; i < buffers; ++i) slots_.push_back({all.slice(before + i * slot_bytes_, slot_bytes_).data, {}, {}});
}

// After an error, reads into this memory may still be in flight.
StagingRing::~StagingRing() {
  for (const Slot& slot : slots_) {
    try {
      slot.read.wait();
    } catch (...) {
    }
  }
}

// A device's stream runs its work on this thread, which then waits for the file. Before that, as many reads are requested as
// there are buffers.
void StagingRing::read(StagedTensor& from, TensorView to, Stream& stream, kernels::Kernels& kernels) {
  std::deque<std::pair<Slot*, TensorView>> asked;
  const auto copy_first = [&] {
    const auto [slot, part] = asked.front();
    asked.pop_front();
    const TensorView staging{slot->memory, part.dtype, part.shape};
    stream.enqueue([read = slot->read, staging, part, &kernels] {
      read.wait();
      kernels.copy_pinned(staging, part);
    });
    slot->copied = stream.record();
  };
  for (int64_t first = 0; first < to.elements();) {
    if (asked.size() == slots_.size()) copy_first();
    Slot& slot = slots_[next_++ % slots_.size()];
    slot.copied.wait_on_host();
    const int64_t count = std::min(to.elements() - first, slot_bytes_ / size_of(to.dtype));
    const TensorView part = to.slice(first, count);
    slot.read = from.read(first, {slot.memory, to.dtype, {count}});
    asked.emplace_back(&slot, part);
    first += count;
  }
  while (!asked.empty()) copy_first();
}

ConstTensorView StagedTensorReader::read(StagedTensor& tensor, int64_t first, int64_t count) {
  StagedTensor& source = tensor.on_host();
  const int64_t granule = source.granule_elements(), size = size_of(source.dtype());
  const int64_t begin = first / granule * granule;
  const int64_t end = std::min((first + count + granule - 1) / granule * granule, source.elements());
  const int64_t bytes = staging_bytes((end - begin) * size);
  if (memory_.empty() || memory_.view().bytes() < bytes) {
    memory_.reset();
    memory_ = Buffer(host_allocator(), meter_, MemoryCategory::Buffers, DType::UInt8, {bytes});
  }
  const TensorView staging{memory_.view().data, source.dtype(), {end - begin}};
  source.read(begin, staging).wait();
  return ConstTensorView(staging).slice(first - begin, count);
}

}  // namespace trivet::zero
