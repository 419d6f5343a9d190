// The tokens of a step's microbatches in a device's memory. On a CPU there is nothing to copy and no object of this class.
#pragma once

#include "core/buffer.h"
#include "core/layer.h"
#include "kernels/kernels.h"

namespace trivet {

class DeviceBatches {
 public:
  // `microbatches` of `shape` [B, S] at a time, with token ids below `vocabulary`.
  DeviceBatches(Allocator& allocator, MemoryMeter& meter, int microbatches, const Shape& shape, int64_t vocabulary);

  // Throws std::out_of_range for ids that the vocabulary lacks, since kernels cannot.
  Microbatch copy(kernels::Kernels& kernels, int place, const Microbatch& host);

 private:
  void check_ids(const char* what, ConstTensorView ids, int32_t least) const;

  Buffer memory_;  // int32 [microbatches, tokens and targets, B, S]
  Shape shape_;
  int64_t vocabulary_;
};

}  // namespace trivet
