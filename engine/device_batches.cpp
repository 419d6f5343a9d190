#include "engine/device_batches.h"

namespace trivet {

namespace {

Buffer buffer(Allocator& allocator, MemoryMeter& meter, DType dtype, int64_t elements) {
  return Buffer(allocator, meter, MemoryCategory::Buffers, dtype, {elements});
}

}  // namespace

DeviceBatches::DeviceBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, int64_t micro_batch_size,
                             const SampleSpec& sample)
    : input_shape_(sample.inputs_of(micro_batch_size)),
      targets_shape_(sample.targets_of(micro_batch_size)),
      reference_shape_(sample.reference_of(micro_batch_size)),
      inputs_(buffer(allocator, meter, sample.input_dtype, microbatches * input_shape_.elements())),
      targets_(buffer(allocator, meter, DType::Int32, microbatches * targets_shape_.elements())) {
  if (sample.pairs) references_ = buffer(allocator, meter, DType::Float64, microbatches * reference_shape_.elements());
}

Microbatch DeviceBatches::copy(kernels::Kernels& kernels, int place, const Microbatch& host) {
  const auto own = [&](Buffer& all, const Shape& longest, const Shape& shape) {
    return all.view().slice(place * longest.elements(), shape.elements()).reshaped(shape);
  };
  const TensorView input = own(inputs_, input_shape_, host.input.shape),
                   targets = own(targets_, targets_shape_, host.targets.shape);
  kernels.from_host(host.input, input);
  kernels.from_host(host.targets, targets);
  if (references_.empty()) return {input, targets, host.first_sample};
  const TensorView reference = own(references_, reference_shape_, host.reference.shape);
  kernels.from_host(host.reference, reference);
  return {input, targets, host.first_sample, reference};
}

}  // namespace trivet
