// The tokens of a step's microbatches in device memory. On a CPU nothing is copied and this class is not used.
#pragma once

#include "core/buffer.h"
#include "core/layer.h"
#include "kernels/kernels.h"

namespace trivet {

class DeviceBatches {
 public:
  // Has room for `microbatches` microbatches of `shape` [B, S], with token ids below `vocabulary`.
  DeviceBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, const Shape& shape, int64_t vocabulary);

  // Throws std::out_of_range for ids that are not in the vocabulary, because kernels cannot.
  Microbatch copy(kernels::Kernels& kernels, int place, const Microbatch& host);

 private:
  void check_ids(const char* what, ConstTensorView ids, int32_t least) const;

  Buffer memory_;  // int32 [microbatches, tokens and targets, B, S]
  Shape shape_;
  int64_t vocabulary_;
};

}  // namespace trivet
