// The memory that each phase of a step uses (memory_breakdown): what is in use, not what the arenas hold in reserve.
//
//   phases.begin();                       // a step
//   phases.after(Op::Forward); ...        // each instruction
//   phases.end();                         // the optimizer step
//   phases.table()
//
// The memory in use is read after each instruction, so it leaves out what a layer needs only while it computes. Memory
// that other instructions allocate (gathers, reductions, transfers) counts in the phase before them; a program begins
// in the forward phase. One thread.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/memory.h"
#include "pipeline/instruction.h"

namespace trivet {

enum class MemoryPhase : uint8_t { Forward, Recompute, Backward, Update };

template <>
struct EnumNames<MemoryPhase> {
  static constexpr std::array<std::pair<std::string_view, MemoryPhase>, 4> table{{{"forward", MemoryPhase::Forward},
                                                                                  {"recompute", MemoryPhase::Recompute},
                                                                                  {"backward", MemoryPhase::Backward},
                                                                                  {"update", MemoryPhase::Update}}};
};

class MemoryPhases {
 public:
  // All must outlive it.
  MemoryPhases(const MemoryMeter& meter, const Arena& activations, const Arena& buffers)
      : meter_(meter), activations_(activations), buffers_(buffers) {}

  void begin();
  void after(pipeline::Op op);
  void end();

  // The most in use at a time in this phase, by category; zeros if the step has no such phase. Update: when it has ended.
  const MemoryBytes& most(MemoryPhase phase) const { return most_[static_cast<size_t>(phase)]; }
  // The most in use at a time of all categories together.
  int64_t most_together(MemoryPhase phase) const { return together_[static_cast<size_t>(phase)]; }
  // A line for each phase that the step has; the first line names the columns.
  std::vector<std::string> table() const;

 private:
  void look(MemoryPhase phase);

  const MemoryMeter& meter_;
  const Arena& activations_;
  const Arena& buffers_;
  MemoryPhase phase_ = MemoryPhase::Forward;
  std::array<MemoryBytes, 4> most_{};
  std::array<int64_t, 4> together_{};
};

}  // namespace trivet
