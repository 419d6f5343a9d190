#include <algorithm>
#include <map>

#include "pipeline/passes/passes.h"

namespace trivet::pipeline {
namespace {

void expand(Program& out, Instruction instruction, const std::vector<int>& first_blocks) {
  const int first = first_blocks.at(instruction.stage);
  const int end = first_blocks.at(instruction.stage + 1);
  for (int n = 0; n < end - first; ++n) {
    instruction.block = instruction.op == Op::Forward ? first + n : end - 1 - n;
    out.push_back(instruction);
  }
}

}  // namespace

Program expand_blocks(const Program& program, const std::vector<int>& first_blocks) {
  Program out;
  for (size_t at = 0; at < program.size(); ++at) {
    Instruction instruction = program[at];
    if (!computes(instruction.op)) {
      out.push_back(instruction);
    } else if (weight_follows(program, at)) {
      instruction.op = Op::Backward;
      expand(out, instruction, first_blocks);
      ++at;
    } else {
      expand(out, instruction, first_blocks);
    }
  }
  return out;
}

Program fuse_loss(const Program& program, int loss_block) {
  Program out;
  for (const Instruction& i : program) {
    if (i.block != loss_block || !computes(i.op)) {
      out.push_back(i);
    } else if (i.op == Op::BackwardInput || i.op == Op::Backward) {
      out.push_back({Op::Loss, i.stage, i.microbatch, i.block});
    }  // its F and W are part of L
  }
  return out;
}

Program insert_recompute(const Program& program, const std::vector<bool>& recomputed) {
  Program out;
  for (const Instruction& i : program) {
    const bool backward = i.op == Op::BackwardInput || i.op == Op::Backward;
    if (backward && recomputed.at(i.block)) out.push_back({Op::Recompute, i.stage, i.microbatch, i.block});
    out.push_back(i);
  }
  return out;
}

Program insert_offload(const Program& program, const std::vector<bool>& offloaded) {
  std::vector<size_t> computations;                  // positions in the program
  std::map<std::pair<int, int>, size_t> forward_of;  // (block, microbatch) -> its F, an index of `computations`
  std::map<size_t, Program> before;                  // position in the program -> the copies that start there
  for (size_t at = 0; at < program.size(); ++at) {
    const Instruction& i = program[at];
    if (!computes(i.op)) continue;
    const size_t now = computations.size();
    computations.push_back(at);
    if (i.op == Op::Forward) forward_of[{i.block, i.microbatch}] = now;
    if (i.op != Op::Recompute || !offloaded.at(i.block)) continue;
    const size_t forward = forward_of.at({i.block, i.microbatch}), fetch = now - 1;
    if (fetch <= forward + 1) continue;
    before[computations[forward]].push_back({Op::Offload, i.stage, i.microbatch, i.block});
    before[computations[fetch]].push_back({Op::Fetch, i.stage, i.microbatch, i.block});
  }
  Program out;
  for (size_t at = 0; at < program.size(); ++at) {
    if (const auto copies = before.find(at); copies != before.end())
      out.insert(out.end(), copies->second.begin(), copies->second.end());
    out.push_back(program[at]);
  }
  return out;
}

Program insert_tie(const Program& program, const std::vector<Tie>& ties, const std::vector<int>& stage_of_block) {
  Program out = program;
  for (const Tie& tie : ties) out.push_back({Op::Tie, stage_of_block.at(tie.user_block), -1, tie.user_block});
  return out;
}

Program insert_sum_loss(const Program& program) {
  Program out = program;
  out.push_back({Op::SumLoss, program.empty() ? 0 : program.front().stage});
  return out;
}

}  // namespace trivet::pipeline
