#include "engine/rank_batches.h"

#include <stdexcept>

namespace trivet {

namespace {

Buffer buffer(Allocator& allocator, MemoryMeter& meter, DType dtype, int64_t elements) {
  return Buffer(allocator, meter, MemoryCategory::Buffers, dtype, {elements});
}

Shape own_shape(Shape shape, const SequencePart& part) {
  if (part.ranks > 1) shape[1] /= part.ranks;
  return shape;
}

void copy_own(kernels::Kernels& kernels, ConstTensorView whole, TensorView own, const SequencePart& part) {
  if (part.ranks == 1) return kernels.from_host(whole, own);
  const int64_t length = whole.shape[1];
  int64_t done = 0;
  for (int64_t row = 0; row < whole.shape[0]; ++row)
    for (const TokenRange& range : part.tokens(length)) {
      kernels.from_host(whole.slice(row * length + range.begin, range.count()), own.slice(done, range.count()));
      done += range.count();
    }
}

}  // namespace

SampleSpec part_of(const SampleSpec& sample, int ranks) {
  if (ranks == 1) return sample;
  if (!sample.is_sequence() || sample.input[0] % ranks != 0)
    throw std::invalid_argument("part_of: the samples are no sequences that these ranks can share");
  return sample.cut_to(sample.input[0] / ranks);
}

RankBatches::RankBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, int64_t micro_batch_size,
                         const SampleSpec& sample, SequencePart part)
    : part_(part),
      microbatches_(microbatches),
      input_shape_(part_of(sample, part.ranks).inputs_of(micro_batch_size)),
      targets_shape_(part_of(sample, part.ranks).targets_of(micro_batch_size)),
      reference_shape_(sample.reference_of(micro_batch_size)),
      inputs_(buffer(allocator, meter, sample.input_dtype, microbatches * input_shape_.elements())),
      targets_(buffer(allocator, meter, DType::Int32, microbatches * targets_shape_.elements())) {
  if (sample.pairs) references_ = buffer(allocator, meter, DType::Float64, microbatches * reference_shape_.elements());
  if (!sample.documents) return;
  for (Buffer* const of_tokens : {&documents_, &positions_})
    *of_tokens = buffer(allocator, meter, DType::Int32, microbatches * sample.targets_of(micro_batch_size).elements());
}

Microbatch RankBatches::copy(kernels::Kernels& kernels, int place, const Microbatch& whole) {
  const auto own = [&](Buffer& all, const Shape& longest, const Shape& shape) {
    return all.view().slice(place * longest.elements(), shape.elements()).reshaped(shape);
  };
  const TensorView input = own(inputs_, input_shape_, own_shape(whole.input.shape, part_)),
                   targets = own(targets_, targets_shape_, own_shape(whole.targets.shape, part_));
  copy_own(kernels, whole.input, input, part_);
  copy_own(kernels, whole.targets, targets, part_);
  Microbatch copied{input, targets, whole.first_sample};
  if (!references_.empty()) {
    const TensorView reference = own(references_, reference_shape_, whole.reference.shape);
    kernels.from_host(whole.reference, reference);
    copied.reference = reference;
  }
  const auto copy_whole = [&](Buffer& all, ConstTensorView given) -> ConstTensorView {
    if (all.empty()) return {};
    const TensorView tokens = own(all, {all.view().elements() / microbatches_}, given.shape);
    kernels.from_host(given, tokens);
    return tokens;
  };
  copied.documents = copy_whole(documents_, whole.documents);
  copied.positions = copy_whole(positions_, whole.positions);
  return copied;
}

}  // namespace trivet
