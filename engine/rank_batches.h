// The samples of a step's microbatches as a rank reads them: of each sequence its own tokens, in memory that its kernels can
// read. A rank that reads whole samples on a CPU uses the caller's memory instead of this class.
#pragma once

#include "core/buffer.h"
#include "core/layer.h"
#include "core/sequence_part.h"
#include "kernels/interface.h"

namespace trivet {

// Context ranks share each sequence (core/sequence_part.h), equally for inputs and targets, which are the next tokens already,
// so that no target is lost where two ranks' parts meet. Returns the samples of such a rank. Throws std::invalid_argument for
// samples that are no sequences, or not divisible.
SampleSpec part_of(const SampleSpec& sample, int ranks);

class RankBatches {
 public:
  // Has room for a part of `microbatches` microbatches of `micro_batch_size` samples, which may be shorter than `sample`.
  RankBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, int64_t micro_batch_size, const SampleSpec& sample,
              SequencePart part = {});

  // `whole` is a microbatch of whole samples in host memory.
  Microbatch copy(kernels::Kernels& kernels, int place, const Microbatch& whole);

 private:
  SequencePart part_;
  int microbatches_;
  Shape input_shape_, targets_shape_, reference_shape_;  // one microbatch's
  // All microbatches, one after another. Documents and positions are those of whole sequences.
  Buffer inputs_, targets_, references_, documents_, positions_;
};

}  // namespace trivet
