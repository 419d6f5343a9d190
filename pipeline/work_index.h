// Finds the instruction of a schedule that does a part of the work: the forward, backward_input and backward_weight of a
// microbatch on a stage, or on a block of it. B is two parts in one instruction, L is three.
#pragma once

#include <vector>

#include "pipeline/instruction.h"
#include "pipeline/stages.h"

namespace trivet::pipeline {

enum class Part : uint8_t { Forward, BackwardInput, BackwardWeight, Recompute };
bool does(Op op, Part part);

// Numbers all instructions of a schedule: those of rank 0 in the order of its program, then those of rank 1 ...
class Numbering {
 public:
  explicit Numbering(const Schedule& schedule);
  int of(size_t rank, size_t at) const { return first_[rank] + static_cast<int>(at); }
  int count() const { return first_.back(); }

 private:
  std::vector<int> first_;  // [rank]
};

class WorkIndex {
 public:
  // Throws std::logic_error for work that is done twice and for a microbatch that does not exist.
  WorkIndex(const Schedule& schedule, int microbatches);

  // Returns the number of the instruction that does this part, or -1. `block` is -1 if instructions are for whole stages.
  int find(Part part, int stage, int block, int microbatch) const;
  // Throws std::logic_error naming a stage and microbatch for which no instruction does this part.
  void require(Part part) const;

  const std::vector<Stage>& stages() const { return stages_; }
  int microbatches() const { return microbatches_; }
  const Numbering& numbers() const { return numbers_; }

 private:
  size_t place(Part part, int stage, int block, int microbatch) const;
  void add(const Instruction& i, int number);

  std::vector<Stage> stages_;
  int microbatches_;
  Numbering numbers_;
  std::vector<size_t> first_slot_;  // [stage] one slot per block, or one for the whole stage
  std::vector<int> numbers_of_;     // [part, slot, microbatch]
};

// Counts the most (stage, microbatch) pairs of a rank that have begun their forward but not finished `end` on all their blocks.
int peak_microbatches(const Program& program, Part end);

}  // namespace trivet::pipeline
