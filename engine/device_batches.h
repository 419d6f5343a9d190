// The samples of a step's microbatches in device memory. On a CPU nothing is copied and this class is not used.
#pragma once

#include "core/buffer.h"
#include "core/layer.h"
#include "kernels/interface.h"

namespace trivet {

class DeviceBatches {
 public:
  // Has room for `microbatches` microbatches of `micro_batch_size` samples, which may be shorter than `sample`.
  DeviceBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, int64_t micro_batch_size, const SampleSpec& sample);

  Microbatch copy(kernels::Kernels& kernels, int place, const Microbatch& host);

 private:
  Shape input_shape_, targets_shape_, reference_shape_;  // one microbatch's
  Buffer inputs_, targets_, references_;                 // all microbatches, one after another
};

}  // namespace trivet
