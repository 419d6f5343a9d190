// Tensors that pass through slots in chunks.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

#include "comm/operation_header.h"

namespace trivet::comm {

inline void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <typename Byte>
std::span<Byte> bytes(Byte* data, int64_t count) {
  return {data, static_cast<size_t>(count)};
}

// A tensor cut into chunks of at most `chunk` elements.
struct Cut {
  int64_t total, chunk, element_bytes;

  int64_t chunks() const { return (total + chunk - 1) / chunk; }
  bool has(int64_t index) const { return index >= 0 && index < chunks(); }
  int64_t first(int64_t index) const { return index * chunk; }
  int64_t count(int64_t index) const { return std::min(chunk, total - first(index)); }
  int64_t offset(int64_t index) const { return first(index) * element_bytes; }
  int64_t bytes(int64_t index) const { return count(index) * element_bytes; }
};

// Returns how many steps after sending a chunk's messages a rank waits for those of the others: enough that links have
// work while ranks wait for each other, and no more than there are chunks, because every step costs a meeting.
inline int64_t steps_ahead(const Cut& cut) { return std::clamp<int64_t>(cut.chunks() - 1, 1, 2); }

// Chunks that take at most this many bytes, of whole cache lines unless they are smaller than one.
inline Cut cut_for(const OperationHeader& header, int64_t chunk_bytes) {
  const int64_t element_bytes = size_of(header.dtype), elements = chunk_bytes / element_bytes;
  if (elements == 0) throw std::logic_error("comm: the group has more ranks than a slot has room for");
  return {header.count, elements >= 64 ? elements / 64 * 64 : elements, element_bytes};
}

}  // namespace trivet::comm
