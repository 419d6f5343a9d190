// The cost models of other planners, to compare with that of this one (step_model.h). n ranks, S bytes, alpha and beta are as
// in collective_cost.h.
#pragma once

#include <cstdint>

#include "autotune/collective_cost.h"

namespace trivet::autotune {

// Alpa (Zheng et al. 2022) has its own units of cost, with a constant for each operation.
//
//   all_gather      alpha + (n-1)/n S beta + 0.1          all_reduce   alpha + 2 (n-1)/n S beta + 0.01
//   reduce_scatter  alpha + (n-1)/n S beta + 0.001        all_to_all   alpha + (n-1)/n^2 S beta n/2 + 0.001
double alpa_all_gather(int64_t ranks, double bytes, const Link& link);
double alpa_all_reduce(int64_t ranks, double bytes, const Link& link);
double alpa_reduce_scatter(int64_t ranks, double bytes, const Link& link);
double alpa_all_to_all(int64_t ranks, double bytes, const Link& link);

// Galvatron (Miao et al. 2022): of P bytes of float32 gradients a data rank sends 2 (n-1)/n P; half of that in mixed precision.
double galvatron_data_message(int64_t ranks, double bytes, bool mixed_precision);
// The backward takes `ratio` times the forward, plus the forward again if it is recomputed.
double galvatron_backward_seconds(double forward, bool recomputed, double ratio = 2);
// The share of a model's states that a data rank keeps, in mixed precision, without accumulation: 7/8 (1/n + 0.003) + 1/8 at
// stage 2, 1/n + 0.003 at stage 3. With gradients accumulated in float32 it is 5/4 of that.
double galvatron_state_share(int zero_stage, int64_t ranks, bool float32_gradients);
// Computation and communication at the same time: each takes `..._slowdown` times as long while the other runs (1.1 to 1.3 in
// measurements), and the rest of the longer one runs alone.
struct Beside {
  double compute = 0, communication = 0;  // seconds alone
  double compute_slowdown = 1, communication_slowdown = 1;
};
double galvatron_overlapped_seconds(const Beside& work);

// A first-order check of whether a network can carry ZeRO at all: the time to send `passes` times the parameters (3 at stage
// 3), and the time to compute `passes` times 2 FLOPs per parameter and token (4: backward counts twice, and a forward is
// recomputed).
double zero_communication_seconds(double parameters, double element_bytes, double passes, double bytes_per_second);
double zero_compute_seconds(double parameters, double tokens, double passes, double flops_per_second_of_all);

}  // namespace trivet::autotune
