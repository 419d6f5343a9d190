// Digests of tensors, for finding values that memory or a processor changed without an error.
//
// A digest is the sum over elements of their bits times an odd number derived from a key and the element's place, modulo 2^64.
// One changed element always changes the digest. Digests of disjoint parts add up to that of the whole, so ranks may split a
// tensor differently. Since int64 elements are summed modulo 2^64, too, the digest of a sum of int64 tensors is the sum of
// their digests.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device.h"
#include "kernels/interface.h"

namespace trivet::kernels {

// Reads tensors where they are, or through a small buffer if the host cannot reach them. On Device::Meta all digests are 0.
class ElementDigest {
 public:
  // `kernels` must outlive it.
  ElementDigest(Kernels& kernels, Device device) : kernels_(kernels), device_(device) {}

  // `first_element`: the place of the view's first element in the tensor that `key` stands for.
  uint64_t of(ConstTensorView view, uint64_t key, int64_t first_element);

 private:
  Kernels& kernels_;
  Device device_;
  std::vector<std::byte> buffer_;
};

}  // namespace trivet::kernels
