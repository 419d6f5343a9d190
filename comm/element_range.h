// Divides the work of an operation among ranks: who sums which elements, and in which order a rank visits the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace trivet::comm {

struct ElementRange {
  int64_t first = 0, count = 0;
};

// Equal parts in rank order, cut at cache lines so that no two ranks write the same one; the last ranks may get fewer elements,
// or none.
inline ElementRange part_of(int64_t elements, int64_t element_bytes, int rank, int ranks) {
  const int64_t line = 64 / element_bytes;
  const int64_t per_rank = ((elements + ranks - 1) / ranks + line - 1) / line * line;
  const int64_t first = std::min(rank * per_rank, elements);
  return {first, std::min(per_rank, elements - first)};
}

// Where each rank's elements are, if `counts` elements of each rank are stored one rank after another.
inline std::vector<ElementRange> parts_of(std::span<const int64_t> counts) {
  std::vector<ElementRange> parts;
  for (int64_t first = 0; int64_t count : counts) {
    parts.push_back({first, count});
    first += count;
  }
  return parts;
}

// All ranks, this one first, then the next: no two ranks read from the same one at the same time.
inline std::vector<int> ranks_after(int rank, int ranks) {
  std::vector<int> order;
  for (int i = 0; i < ranks; ++i) order.push_back((rank + i) % ranks);
  return order;
}

}  // namespace trivet::comm
