// A schedule is data: a list of instructions for each pipeline rank. This file defines an instruction, prints and parses it.
//
//   0F3         stage 0 runs the forward of microbatch 3          0.2F3  only block 2 of it (after expand_blocks)
//
// A stage is a run of consecutive blocks of the model; stages are numbered in the order of the model, and a pipeline rank may
// have several (interleaved schedules: rank r has stages r, r + P, r + 2P ...; V schedules: r and 2P - 1 - r). Blocks are
// numbered over the whole model.
//
//   0I3 0W3     backward_input, backward_weight                   0B3    both at once
//   0L3         the loss block: forward, backward_input and backward_weight in one
//   0R3         run the forward again, to fill Saved (recomputation)
//   0SEND_F3    send the output of microbatch 3 to the next stage; also RECV_F, SEND_B (gradients, to the previous), RECV_B
//   0.2OFFLOAD3 copy the input of block 2 to host memory; the forward after it releases the input on the device
//   0.2FETCH3   copy it back to the device, where the recomputation after it uses it
//   0.2UNSHARD  make the sharded weights of block 2 whole; 0.2RESHARD releases them
//   0.2REDUCE   reduce the gradients of block 2 over the data axis
//   3.9TIE      sum the gradients of the weights that block 9 shares with an earlier block; the ranks of both blocks have one
//   0SUM_LOSS   sum the loss over all ranks
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace trivet::pipeline {

enum class Op : uint8_t {
  Forward,
  BackwardInput,
  BackwardWeight,
  Backward,
  Loss,
  Recompute,
  SendForward,
  ReceiveForward,
  SendBackward,
  ReceiveBackward,
  Offload,
  Fetch,
  Unshard,
  Reshard,
  Reduce,
  Tie,
  SumLoss,
};

struct Instruction {
  Op op = Op::Forward;
  int stage = 0;
  int microbatch = -1;  // -1: for no particular microbatch
  int block = -1;       // -1: the whole stage; else a block, numbered over the whole model
  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;  // instructions that one rank runs, in order
using Schedule = std::vector<Program>;     // index: pipeline rank

constexpr bool computes(Op op) { return op <= Op::Recompute; }
// backward_weight needs no weights, so they can be released before it.
constexpr bool needs_weights(Op op) { return computes(op) && op != Op::BackwardWeight; }
constexpr bool makes_weight_gradients(Op op) { return op == Op::BackwardWeight || op == Op::Backward || op == Op::Loss; }
constexpr bool communicates_between_stages(Op op) { return op >= Op::SendForward && op <= Op::ReceiveBackward; }

std::string to_string(const Instruction& instruction);
std::string to_string(const Program& program);  // separated by single spaces
// Inverse of to_string; tokens are separated by white space. Throws ConfigError naming a token that is not an instruction.
Program parse_program(std::string_view text);

}  // namespace trivet::pipeline

namespace trivet {
template <>
struct EnumNames<pipeline::Op> {
  using Op = pipeline::Op;
  static constexpr std::array<std::pair<std::string_view, Op>, 17> table{{{"F", Op::Forward},
                                                                          {"I", Op::BackwardInput},
                                                                          {"W", Op::BackwardWeight},
                                                                          {"B", Op::Backward},
                                                                          {"L", Op::Loss},
                                                                          {"R", Op::Recompute},
                                                                          {"SEND_F", Op::SendForward},
                                                                          {"RECV_F", Op::ReceiveForward},
                                                                          {"SEND_B", Op::SendBackward},
                                                                          {"RECV_B", Op::ReceiveBackward},
                                                                          {"OFFLOAD", Op::Offload},
                                                                          {"FETCH", Op::Fetch},
                                                                          {"UNSHARD", Op::Unshard},
                                                                          {"RESHARD", Op::Reshard},
                                                                          {"REDUCE", Op::Reduce},
                                                                          {"TIE", Op::Tie},
                                                                          {"SUM_LOSS", Op::SumLoss}}};
};
}  // namespace trivet
