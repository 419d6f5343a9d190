// Counts bytes in use by category. `plan` predicts these numbers, a run measures them, and both print them side by side.
//
// One MemoryMeter per rank. Buffers and arenas report to it; nothing else allocates in the steady state.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/enum_names.h"

namespace trivet {

enum class MemoryCategory : uint8_t { Parameters, Gradients, Optimizer, Activations, Buffers };
inline constexpr int kMemoryCategories = 5;

template <>
struct EnumNames<MemoryCategory> {
  static constexpr std::array<std::pair<std::string_view, MemoryCategory>, kMemoryCategories> table{
      {{"parameters", MemoryCategory::Parameters},
       {"gradients", MemoryCategory::Gradients},
       {"optimizer", MemoryCategory::Optimizer},
       {"activations", MemoryCategory::Activations},
       {"buffers", MemoryCategory::Buffers}}};
};

struct MemoryBytes {
  std::array<int64_t, kMemoryCategories> by_category{};
  int64_t& operator[](MemoryCategory category) { return by_category[static_cast<size_t>(category)]; }
  int64_t operator[](MemoryCategory category) const { return by_category[static_cast<size_t>(category)]; }
  int64_t total() const {
    int64_t sum = 0;
    for (int64_t bytes : by_category) sum += bytes;
    return sum;
  }
  bool operator==(const MemoryBytes&) const = default;
};

class MemoryMeter {
 public:
  void add(MemoryCategory category, int64_t bytes);
  void remove(MemoryCategory category, int64_t bytes) { now_[static_cast<size_t>(category)] -= bytes; }
  MemoryBytes now() const;
  MemoryBytes peak() const;  // each category's own; the peaks may be at different moments

 private:
  std::array<std::atomic<int64_t>, kMemoryCategories> now_{};
  std::array<std::atomic<int64_t>, kMemoryCategories> peak_{};
};

}  // namespace trivet
