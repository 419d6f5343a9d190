// Closed formulas for what the ranks of a pipeline hold and how long they are idle: for the schedules that Trivet has, checked
// against its simulator, and for others, to compare with.
//
//   p ranks, rank i from 0, m microbatches, v chunks (stages) per rank; L, h, V, s, b, t as in transformer_formulas.h
#pragma once

#include <cstdint>

#include "autotune/transformer_formulas.h"
#include "pipeline/schedules/schedule_kind.h"

namespace trivet::autotune {

// The most pairs of stage and microbatch that rank i holds at a time, from F to the B that returns the gradient. A stage is a
// v-th of a rank.
//
//   gpipe        m
//   1f1b, zb-h1  min(m, p - i)                        (Narayanan et al. 2021; Qi et al. 2023)
//   zb-2p        min(m, 2 (p - i) - 1)
//   interleaved  2 (p - i - 1) + (v - 1) p + 1        for m > p
//
// Throws std::logic_error for zb-v, which balances its ranks by weight gradients and has no such formula.
int64_t most_in_flight(ScheduleKind kind, int64_t ranks, int64_t rank, int64_t microbatches, int64_t chunks);

// 1F1B is idle for B = (p - 1) / (m + p - 1) of a step. "V" schedules (Qi et al. 2024, "Pipeline Parallelism with Controllable
// Memory") reduce this bubble and 1F1B's activations to these shares, for m much larger than p and equal times of all passes.
struct VSchedule {
  double bubble_share, activation_share;
};
double bubble_rate(int64_t ranks, int64_t microbatches);
VSchedule v_half(int64_t ranks, int64_t microbatches);  // B / 2 and 1/2
VSchedule v_min(int64_t ranks, int64_t microbatches);   // 2 B / 3 and 1/3

// Formulas for the idle seconds of a step. `backward` is the time of both gradients, of inputs and of weights; `weight` is that
// of weights alone.
struct PassSeconds {
  double forward = 0, backward = 0, weight = 0;
  double together = 0;  // a forward and a backward of two microbatches that overlap (DualPipe)
};
double zero_bubble_idle(int64_t ranks, const PassSeconds& passes);  // (p - 1) (F + B - 2 W): ZB-H1
// DualPipe (DeepSeek-V3, 2024) is idle for (p / 2 - 1) (F&B + B - 3 W), on an even number of ranks; it holds twice the
// parameters and p + 1 microbatches.
double dual_pipe_idle(int64_t ranks, const PassSeconds& passes);

// Parameters of a GPT's stage on one tensor rank, including biases: 12 h^2 / t + (6 + 7 / t) h per layer; the token embedding,
// h V / t, on the first and on the last stage; positions, h s, on the first; the last norm, 2 h, on the last. The rank that
// holds most must fit, and it holds more than the mean over ranks.
struct StageOfGpt {
  int64_t layers = 0;
  bool first = false, last = false;
  bool tied = true;  // one token embedding, if one stage is both
};
double gpt_stage_parameters(const TransformerShape& shape, const StageOfGpt& stage, int64_t tensor);

// Activation bytes of the first stage with 1F1B or, with v > 1, interleaved, by Megatron-LM's estimate. They are the layers in
// flight (layers_in_flight); for each of p microbatches the dropout of the embedding, s b h / t, and 8 bytes of ids per token;
// for p = 1 the head's 4 s b h (1 + V / h) / t; with LayerInputs the layer that is recomputed. With c context ranks, each holds
// a c-th of the sum.
struct FirstStage {
  int64_t microbatch = 1, microbatches = 1;
  int64_t pipeline = 1, chunks = 1, tensor = 1, context = 1;
  bool sequence_parallel = false;
  SavedActivations saved = SavedActivations::All;
};
double first_stage_activation_bytes(const TransformerShape& shape, const FirstStage& stage);

}  // namespace trivet::autotune
