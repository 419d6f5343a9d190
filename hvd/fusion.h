// Tensor fusion: which of the tensors that are ready travel in one operation.
//
// Only allreduces whose elements have the same wire type and are combined alike are put together; Average and Sum are. A batch
// is full when the next tensor would make it longer than the threshold. A longer tensor is a batch by itself. Batches are in
// the order of their first tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hvd/request_table.h"

namespace trivet::hvd {

// Returns indices into `ready`, each of which occurs once.
std::vector<std::vector<size_t>> fuse(std::span<const Agreed> ready, int64_t threshold_bytes);

}  // namespace trivet::hvd
