#include "engine/device_batches.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

namespace trivet {

DeviceBatches::DeviceBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, const Shape& shape, int64_t vocabulary)
    : memory_(allocator, meter, MemoryCategory::Buffers, DType::Int32, {int64_t{microbatches} * 2 * shape.elements()}),
      shape_(shape),
      vocabulary_(vocabulary) {}

Microbatch DeviceBatches::copy(kernels::Kernels& kernels, int place, const Microbatch& host) {
  const int64_t elements = shape_.elements(), first = int64_t{place} * 2 * elements;
  const TensorView tokens = memory_.view().slice(first, elements).reshaped(shape_);
  const TensorView targets = memory_.view().slice(first + elements, elements).reshaped(shape_);
  check_ids("token", host.tokens, 0);
  check_ids("target", host.targets, std::numeric_limits<int32_t>::min());  // negative targets are ignored
  kernels.from_host(host.tokens, tokens);
  kernels.from_host(host.targets, targets);
  return {tokens, targets, host.first_sample};
}

void DeviceBatches::check_ids(const char* what, ConstTensorView ids, int32_t least) const {
  if (!ids.data) return;  // a rehearsal
  for (int64_t i = 0; i < ids.elements(); ++i) {
    const int32_t id = ids.as<int32_t>()[i];
    if (id >= vocabulary_ || id < least)
      throw std::out_of_range(
          fmt::format("engine: {} {} at position {} of a microbatch is not in the vocabulary of {}", what, id, i, vocabulary_));
  }
}

}  // namespace trivet
