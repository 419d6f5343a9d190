#include "engine/memory_phases.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet {
namespace {

using pipeline::Op;

MemoryPhase phase_of(Op op, MemoryPhase before) {
  switch (op) {
    case Op::Forward: return MemoryPhase::Forward;
    case Op::Recompute: return MemoryPhase::Recompute;
    case Op::Loss:
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight: return MemoryPhase::Backward;
    default: return before;
  }
}

constexpr const char* kMemoryRow = "{:<10} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}";

std::string mebibytes(int64_t bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

void MemoryPhases::begin() {
  most_ = {};
  together_ = {};
  phase_ = MemoryPhase::Forward;
}

void MemoryPhases::after(Op op) {
  phase_ = phase_of(op, phase_);
  look(phase_);
}

void MemoryPhases::end() { look(MemoryPhase::Update); }

// An arena has all of its memory from the start, and the meter counts that.
void MemoryPhases::look(MemoryPhase phase) {
  MemoryBytes now = meter_.now();
  now[MemoryCategory::Activations] += activations_.used_bytes() - activations_.capacity_bytes();
  now[MemoryCategory::Buffers] += buffers_.used_bytes() - buffers_.capacity_bytes();
  const auto place = static_cast<size_t>(phase);
  for (int i = 0; i < kMemoryCategories; ++i)
    most_[place].by_category[i] = std::max(most_[place].by_category[i], now.by_category[i]);
  together_[place] = std::max(together_[place], now.total());
}

std::vector<std::string> MemoryPhases::table() const {
  std::vector<std::string> lines{fmt::format(
      kMemoryRow, "most in", name_of(MemoryCategory::Parameters), name_of(MemoryCategory::Gradients),
      name_of(MemoryCategory::Optimizer), name_of(MemoryCategory::Activations), name_of(MemoryCategory::Buffers), "together")};
  for (const auto& [name, phase] : EnumNames<MemoryPhase>::table) {
    if (most_together(phase) == 0) continue;
    const auto column = [&bytes = most(phase)](MemoryCategory category) { return mebibytes(bytes[category]); };
    lines.push_back(fmt::format(kMemoryRow, name, column(MemoryCategory::Parameters), column(MemoryCategory::Gradients),
                                column(MemoryCategory::Optimizer), column(MemoryCategory::Activations),
                                column(MemoryCategory::Buffers), mebibytes(most_together(phase))));
  }
  return lines;
}

}  // namespace trivet
