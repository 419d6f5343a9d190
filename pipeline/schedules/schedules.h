// Generators of compute order: which rank runs what, in which order. Passes (pipeline/passes) add everything else.
//
// Each returns one program per pipeline rank, which consists of F, I and W of whole stages. On every stage F, I and W each run
// in ascending order of microbatches, so that sums over microbatches are taken in the same order in every schedule. In the
// table there are P ranks, M microbatches and V chunks (stages per rank), and one microbatch takes the times F, I and W on one
// rank (on all its chunks together):
//
//   kind         stages of rank r     makespan                                     peak on rank r, in microbatches of one stage
//   gpipe        r                    (M + P - 1)(F + I + W)                       M
//   1f1b         r                    (M + P - 1)(F + I + W)                       min(M, P - r)
//   interleaved  r, r + P, r + 2P...  (M + (P - 1)/V)(F + I + W)                   2(P - r - 1) + (V - 1)P + 1
//   zb-h1        r                    M(F + I + W) + (P - 1)(F + I - W)            min(M, P)
//   zb-2p        r                    M(F + I + W) + (P - 1)max(F, F + I - 2W)     min(M, 2P - 1)
//   zb-v         r, 2P - 1 - r        M(F + I + W) + (P - 1)F/2 if F = I = W       2P
//
// In the first three kinds each W directly follows its I, and the two count as one backward: the gradient is sent after both.
// In the zero-bubble kinds it is sent after I: insert_send_receive puts the SEND_B between the two, so that expand_blocks does
// not merge them into a B. If it were sent after W, zb-v would lose its gain (P 4, M 8, F = I = W = 1: 28.5 instead of 25.5).
// The makespans of zb-h1 and zb-2p assume W <= F <= I. The makespans hold if M is large enough: a multiple of P for
// interleaved, at least P for zb-h1, at least 2P - 1 for zb-2p and zb-v. The peaks hold for M > P (interleaved: a multiple of
// P) and M >= 2P - 1 (zb-v). Any M >= 1 gives a correct schedule.
#pragma once

#include <string>
#include <string_view>

#include "pipeline/instruction.h"
#include "pipeline/passes/passes.h"
#include "pipeline/schedules/schedule_kind.h"

namespace trivet::pipeline {

struct ScheduleSizes {
  int ranks = 1;         // P
  int microbatches = 1;  // M
  int chunks = 1;        // V
};

// Throws ConfigError for sizes that `kind` does not support.
Schedule generate(ScheduleKind kind, const ScheduleSizes& sizes);

// Returns when schedules of a kind send gradients.
BackwardSends backward_sends(ScheduleKind kind);

// Runs all forwards, then all backwards (Huang et al. 2019).
Schedule gpipe(int ranks, int microbatches);

// Runs warm-up forwards, then one forward and one backward in turn (PipeDream-flush, Narayanan et al. 2021).
Schedule one_forward_one_backward(int ranks, int microbatches);

// This is 1F1B in which each microbatch visits every rank V times: bubbles are V times smaller, and there are V times as many
// transfers (Narayanan et al. 2021b).
Schedule interleaved(int ranks, int microbatches, int chunks);

// This is 1F1B in which W waits until there is nothing better to do ("Zero Bubble Pipeline Parallelism", Qi et al. 2024): rank
// r runs r of its W late, which fills the end of the step. Every rank needs as much memory as the first rank of 1F1B.
Schedule zero_bubble_h1(int ranks, int microbatches);

// This is H2 of the same paper (zb-2p, about twice the memory): more forwards also fill the wait for the first backward.
Schedule zero_bubble_2p(int ranks, int microbatches);

// Each rank has two chunks, laid out as a V, so that the first rank also has the last stage and its backward starts at once
// ("Pipeline Parallelism with Controllable Memory", Qi et al. 2024). Every rank needs as much memory as the first rank of 1F1B.
Schedule zero_bubble_v(int ranks, int microbatches);

// Reads the compute order from a file: one line per rank, tokens as to_string(Program) prints them, and B for an I directly
// followed by its W; `#` starts a comment. Throws ConfigError naming the file, line and token, or the reason why the schedule
// cannot run.
Schedule read_schedule(const std::string& path);

// Reads the same format from `text`; messages use `name` instead of a path.
Schedule parse_schedule(std::string_view text, const std::string& name);

}  // namespace trivet::pipeline
