// How much ranks send, in elements, by formulas from the literature. A Plan's counters are checked against these formulas, and
// they show what axes that Trivet does not have would cost.
//
//   psi parameters, n data ranks, m microbatches per step, x = b s h elements of activations of one layer and one microbatch,
//   t tensor ranks, P ranks that share a sequence, e ranks that share experts
//
// All volumes are for one rank and for rings, with the exact (n - 1) / n that papers leave out. Bytes are elements times the
// size of the type that is sent: gradients summed in float32 take twice the bytes of those in 16 bits.
#pragma once

#include <cstdint>

#include "pipeline/passes/unshard_release.h"

namespace trivet::autotune {

// The volume of a step on the data axis (ZeRO, Rajbhandari et al. 2020, section 7), in units of (n - 1) / n:
//
//   stage       reduced   gathered
//   0           2 psi                  all_reduce
//   1           psi       psi
//   2           m psi     psi          gradients leave with every microbatch
//   3           m psi     2 m psi      weights released after each use (Use)
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

// The volume if weights, gradients and states are sharded over `shard_ranks`, and each shard has `replicas` (MiCS, Zhang et al.
// 2022; PyTorch's HSDP): stage 3 inside a shard group, and once per step an all_reduce of a shard's gradients across the
// replicas, 2 psi / shard_ranks.
struct HybridVolume {
  double inside = 0, across = 0;
};
HybridVolume hybrid_shard_volume(double parameters, int64_t shard_ranks, int64_t replicas, int64_t microbatches);

// What leaves a node per microbatch with ZeRO++ (Wang et al. 2023), in elements of 16 bits; with plain stage 3 each of the
// three is psi. Weights are gathered in 8 bits for the forward and from a copy within the node for the backward, and gradients
// are exchanged in 4 bits.
struct QuantizedVolume {
  double forward_gather = 0, backward_gather = 0, gradients = 0;
  double total() const { return forward_gather + backward_gather + gradients; }
};
QuantizedVolume zero_plus_plus_volume(double parameters);

// Forward and backward of a layer on the tensor axis (Shoeybi et al. 2019) do 4 all_reduces: 8 (t - 1) / t x. With sequence
// parallelism (Korthikanti et al. 2022) they do 4 all_gathers and 4 reduce_scatters, which is as much, and an all_gather of x
// for each of the `gathered_again` inputs of products that backward gathers instead of keeping.
double tensor_layer_volume(double activations, int64_t ranks, int64_t gathered_again = 0);

// The forward of a layer whose attention is split by heads (DeepSpeed-Ulysses, Jacobs et al. 2023) does all_to_alls of queries,
// keys, values and output: (2 + 2 kv) of x / P each, of which (P - 1) / P is sent. kv: key/value heads for each head.
double ulysses_layer_volume(double activations, int64_t ranks, double key_value_share = 1);

// The forward of a layer whose keys and values go round a ring of ranks sends P - 1 times 2 kv x / P (Ring Attention, Liu et
// al. 2023). Backward sends twice as much: the same again, and its gradients.
double ring_attention_volume(double activations, int64_t ranks, double key_value_share = 1);

// The forward of a layer of experts sends 2 (e - 1) / e chosen x: tokens go to their `chosen` experts and back, and choose
// evenly (GShard, Lepikhin et al. 2020). Backward sends as much.
double expert_layer_volume(double activations, int64_t ranks, int64_t chosen);

}  // namespace trivet::autotune
