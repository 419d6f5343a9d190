#include "core/memory.h"

namespace trivet {

void MemoryMeter::add(MemoryCategory category, int64_t bytes) {
  const auto index = static_cast<size_t>(category);
  const int64_t now = now_[index] += bytes;
  int64_t peak = peak_[index];
  while (now > peak && !peak_[index].compare_exchange_weak(peak, now)) {
  }
}

MemoryBytes MemoryMeter::now() const {
  MemoryBytes bytes;
  for (int i = 0; i < kMemoryCategories; ++i) bytes.by_category[i] = now_[i];
  return bytes;
}

MemoryBytes MemoryMeter::peak() const {
  MemoryBytes bytes;
  for (int i = 0; i < kMemoryCategories; ++i) bytes.by_category[i] = peak_[i];
  return bytes;
}

}  // namespace trivet
