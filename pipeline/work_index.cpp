#include "pipeline/work_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace trivet::pipeline {
namespace {

constexpr size_t kParts = 4;

size_t slots(const Stage& stage) { return stage.last_block - stage.first_block + 1; }

}  // namespace

bool does(Op op, Part part) {
  switch (part) {
    case Part::Forward: return op == Op::Forward || op == Op::Loss;
    case Part::BackwardInput: return op == Op::BackwardInput || op == Op::Backward || op == Op::Loss;
    case Part::BackwardWeight: return makes_weight_gradients(op);
    case Part::Recompute: return op == Op::Recompute;
  }
  return false;
}

Numbering::Numbering(const Schedule& schedule) : first_{0} {
  for (const Program& program : schedule) first_.push_back(first_.back() + static_cast<int>(program.size()));
}

WorkIndex::WorkIndex(const Schedule& schedule, int microbatches)
    : stages_(find_stages(schedule)), microbatches_(microbatches), numbers_(schedule), first_slot_{0} {
  for (const Stage& stage : stages_) first_slot_.push_back(first_slot_.back() + slots(stage));
  numbers_of_.assign(kParts * first_slot_.back() * microbatches, -1);
  for (size_t rank = 0; rank < schedule.size(); ++rank)
    for (size_t at = 0; at < schedule[rank].size(); ++at)
      if (computes(schedule[rank][at].op)) add(schedule[rank][at], numbers_.of(rank, at));
}

size_t WorkIndex::place(Part part, int stage, int block, int microbatch) const {
  const size_t slot = first_slot_[stage] + block - stages_[stage].first_block;
  return (static_cast<size_t>(part) * first_slot_.back() + slot) * microbatches_ + microbatch;
}

void WorkIndex::add(const Instruction& i, int number) {
  if (i.microbatch < 0 || i.microbatch >= microbatches_)
    throw std::logic_error(
        fmt::format("schedule: {} does not belong to any of the {} microbatches", to_string(i), microbatches_));
  for (Part part : {Part::Forward, Part::BackwardInput, Part::BackwardWeight, Part::Recompute}) {
    if (!does(i.op, part)) continue;
    int& known = numbers_of_[place(part, i.stage, i.block, i.microbatch)];
    if (known >= 0) throw std::logic_error(fmt::format("schedule: {} runs twice", to_string(i)));
    known = number;
  }
}

int WorkIndex::find(Part part, int stage, int block, int microbatch) const {
  return numbers_of_[place(part, stage, block, microbatch)];
}

void WorkIndex::require(Part part) const {
  const Op op = part == Part::Forward ? Op::Forward : part == Part::BackwardInput ? Op::BackwardInput : Op::BackwardWeight;
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    for (int block = stages_[stage].first_block; block <= stages_[stage].last_block; ++block)
      for (int m = 0; m < microbatches_; ++m)
        if (find(part, static_cast<int>(stage), block, m) < 0)
          throw std::logic_error(
              fmt::format("schedule: {} is missing", to_string(Instruction{op, static_cast<int>(stage), m, block})));
}

int peak_microbatches(const Program& program, Part end) {
  std::map<std::pair<int, int>, int> open;  // (stage, microbatch) -> instructions still to come
  for (const Instruction& i : program)
    if (does(i.op, end)) ++open[{i.stage, i.microbatch}];
  std::map<std::pair<int, int>, bool> begun;
  int live = 0, most = 0;
  for (const Instruction& i : program) {
    const std::pair key{i.stage, i.microbatch};
    if (does(i.op, Part::Forward) && !std::exchange(begun[key], true)) most = std::max(most, ++live);
    if (does(i.op, end) && --open[key] == 0) --live;
  }
  return most;
}

}  // namespace trivet::pipeline
