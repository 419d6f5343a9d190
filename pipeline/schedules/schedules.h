// Generators of compute order: which rank runs what, in which order. Passes (pipeline/passes) add everything else.
//
// Each returns one program per pipeline rank, made of F, I and W of whole stages. On every stage F, I and W each run in
// ascending order of microbatches, so that sums over microbatches have one order whatever the schedule. P ranks, M
// microbatches, V chunks (stages a rank), and the times F, I and W of one microbatch on one rank (all its chunks):
//
//   kind         stages of rank r     makespan                                     peak on rank r, in microbatches of one stage
//   gpipe        r                    (M + P - 1)(F + I + W)                       M
//   1f1b         r                    (M + P - 1)(F + I + W)                       min(M, P - r)
//   interleaved  r, r + P, r + 2P...  (M + (P - 1)/V)(F + I + W)                   2(P - r - 1) + (V - 1)P + 1
//   zb-h1        r                    M(F + I + W) + (P - 1)(F + I - W)            min(M, P)
//   zb-2p        r                    M(F + I + W) + (P - 1)max(F, F + I - 2W)     min(M, 2P - 1)
//   zb-v         r, 2P - 1 - r        M(F + I + W) + (P - 1)F/2 if F = I = W       2P
//
// In the first three I and W stand side by side and count as one backward: the gradient leaves after both. In the zero-bubble
// kinds it leaves after I (insert_send_receive puts the SEND_B between the two, so that expand_blocks makes no B of them);
// after W, zb-v would lose its gain (P 4, M 8, F = I = W = 1: 28.5 instead of 25.5). The makespans of zb-h1 and zb-2p are for W
// <= F <= I. They hold where M is large enough: a multiple of P for interleaved, P for zb-h1, 2P - 1 for zb-2p and zb-v. The
// peaks are for M > P (interleaved: a multiple of P) and M >= 2P - 1 (zb-v). Any M from 1 gives a correct schedule.
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

// Throws ConfigError for sizes that `kind` does not have.
Schedule generate(ScheduleKind kind, const ScheduleSizes& sizes);

// The chunks of a kind when nobody asks for a number: 2 for interleaved and zb-v, else 1.
int default_chunks(ScheduleKind kind);

// When gradients leave in schedules of a kind: after I in the zero-bubble ones.
BackwardSends backward_sends(ScheduleKind kind);

// All forwards, then all backwards (Huang et al. 2019).
Schedule gpipe(int ranks, int microbatches);

// Warm-up forwards, then one forward and one backward in turn (PipeDream-flush, Narayanan et al. 2021).
Schedule one_forward_one_backward(int ranks, int microbatches);

// 1F1B in which each rank goes round V times: bubbles are V times smaller, transfers V times more (Narayanan et al. 2021b).
Schedule interleaved(int ranks, int microbatches, int chunks);

// 1F1B in which W waits until there is nothing better to do ("Zero Bubble Pipeline Parallelism", Qi et al. 2024): rank r runs r
// of its W late, which fills the end of the step. Memory of 1F1B's first rank, on every rank.
Schedule zero_bubble_h1(int ranks, int microbatches);

// The same paper's H2 (zb-2p: about twice the memory): further forwards fill the wait for the first backward too.
Schedule zero_bubble_2p(int ranks, int microbatches);

// Two chunks a rank, laid out as a V, so that the first rank also has the last stage and its backward starts at once
// ("Pipeline Parallelism with Controllable Memory", Qi et al. 2024). Memory of 1F1B's first rank, on every rank.
Schedule zero_bubble_v(int ranks, int microbatches);

// The compute order that a file states: one line per rank, tokens as to_string(Program) prints them, also B for I directly
// followed by W; `#` starts a comment. Throws ConfigError naming file, line and token, or what keeps the schedule from running.
Schedule read_schedule(const std::string& path);

// The same from text; `name` stands for the file in messages.
Schedule parse_schedule(std::string_view text, const std::string& name);

}  // namespace trivet::pipeline
