#include <algorithm>

#include "pipeline/passes/passes.h"

namespace trivet::pipeline {
namespace {

bool weight_follows(const Program& program, size_t at) {
  return at + 1 < program.size() && program[at + 1].op == Op::BackwardWeight && program[at + 1].stage == program[at].stage &&
         program[at + 1].microbatch == program[at].microbatch;
}

void expand(Program& out, Instruction instruction, int blocks) {
  for (int n = 0; n < blocks; ++n) {
    instruction.block = instruction.op == Op::Forward ? n : blocks - 1 - n;
    out.push_back(instruction);
  }
}

}  // namespace

Program expand_blocks(const Program& program, int blocks) {
  Program out;
  for (size_t at = 0; at < program.size(); ++at) {
    Instruction instruction = program[at];
    if (!computes(instruction.op)) {
      out.push_back(instruction);
    } else if (instruction.op == Op::BackwardInput && weight_follows(program, at)) {
      instruction.op = Op::Backward;
      expand(out, instruction, blocks);
      ++at;
    } else {
      expand(out, instruction, blocks);
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

Program insert_recompute(const Program& program) {
  Program out;
  for (const Instruction& i : program) {
    if (i.op == Op::BackwardInput || i.op == Op::Backward) out.push_back({Op::Recompute, i.stage, i.microbatch, i.block});
    out.push_back(i);
  }
  return out;
}

}  // namespace trivet::pipeline
