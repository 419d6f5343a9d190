// What ranks send, in elements, by the formulas of the literature: what a Plan's counters are checked against, and what axes
// that Trivet does not have would cost.
//
//   psi parameters, n data ranks, m microbatches of a step; of one layer and one microbatch: x = b s h elements of activations,
//   t tensor ranks, P ranks that share a sequence, e ranks that share experts
//
// All are of one rank and of rings: the exact (n - 1) / n is in them, which papers leave out. Bytes are elements times the size
// of what is sent: gradients summed in float32 weigh twice those in 16 bits.
#pragma once

#include <cstdint>

#include "pipeline/passes/unshard_release.h"

namespace trivet::autotune {

// Of a step on the data axis (ZeRO, Rajbhandari et al. 2020, section 7), times (n - 1) / n:
//
//   stage       reduced   gathered
//   0           2 psi                  all_reduce
//   1           psi       psi
//   2           m psi     psi          gradients leave with every microbatch
//   3           m psi     2 m psi      weights released behind each use (Use)
//               m psi     m psi        kept from forward to backward (Microbatch)
//               m psi     psi          kept for the step (Step)
struct DataVolume {
  double reduced = 0, gathered = 0;
  double total() const { return reduced + gathered; }
};
struct DataAxis {
  int zero_stage = 0;
  int64_t ranks = 1, microbatches = 1;
  pipeline::UnshardRelease release = pipeline::UnshardRelease::Use;  // stage 3; not Distance, which is between Use and Step
};
DataVolume data_volume(const DataAxis& axis, double parameters);

// Weights, gradients and states sharded over `shard_ranks`, which have `replicas` (MiCS, Zhang et al. 2022; PyTorch's HSDP):
// stage 3 inside a shard group, and once a step an all_reduce of a shard's gradients across, 2 psi / shard_ranks.
struct HybridVolume {
  double inside = 0, across = 0;
};
HybridVolume hybrid_shard_volume(double parameters, int64_t shard_ranks, int64_t replicas, int64_t microbatches);

// What leaves a node with ZeRO++ (Wang et al. 2023), of a microbatch, in elements of 16 bits; psi each at stage 3. Weights are
// gathered in 8 bits for the forward, from a copy within the node for the backward, and gradients are exchanged in 4 bits.
struct QuantizedVolume {
  double forward_gather = 0, backward_gather = 0, gradients = 0;
  double total() const { return forward_gather + backward_gather + gradients; }
};
QuantizedVolume zero_plus_plus_volume(double parameters);

// Forward and backward of a layer on the tensor axis (Shoeybi et al. 2019): 4 all_reduces, 8 (t - 1) / t x. With sequence
// parallelism (Korthikanti et al. 2022) 4 all_gathers and 4 reduce_scatters, as much; and with `gathered_again` inputs of
// products that backward gathers instead of keeping, an all_gather of x each.
double tensor_layer_volume(double activations, int64_t ranks, int64_t gathered_again = 0);

// Forward of a layer with attention split by heads (DeepSpeed-Ulysses, Jacobs et al. 2023): all_to_alls of queries, keys,
// values and output, each of x / P, of which (P - 1) / P is sent; (2 + 2 kv) of them. kv: key/value heads for each head.
double ulysses_layer_volume(double activations, int64_t ranks, double key_value_share = 1);

// Forward of a layer whose keys and values go round a ring of ranks (Ring Attention, Liu et al. 2023): P - 1 times 2 kv x / P.
// Backward sends as much again, and the gradients of what it sends: twice that.
double ring_attention_volume(double activations, int64_t ranks, double key_value_share = 1);

// Forward of a layer of experts (GShard, Lepikhin et al. 2020): tokens go to their `chosen` experts and come back,
// 2 (e - 1) / e chosen x where tokens choose evenly. Backward sends as much.
double expert_layer_volume(double activations, int64_t ranks, int64_t chosen);

}  // namespace trivet::autotune
