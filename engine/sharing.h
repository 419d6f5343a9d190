// Says which ranks hold which elements of a parameter, and which read which samples.
//
// Two questions about ranks have one answer while data parallelism is the only axis that copies weights: which ranks hold the
// same elements of a parameter, and which read different samples.
//
// Experts have a mesh of their own over the same ranks (Mesh::view): there the expert axis takes some of the ranks that are
// data and context ranks to dense parameters. Tensor ranks share each expert as they share other layers. So in both views,
// ranks that hold equal elements differ along the same axes.
//
//   8 ranks, data 4 x tensor 2, expert 2       dense: equal along data      {0 2 4 6} {1 3 5 7}
//                                              experts: equal along data    {0 4} {1 5} {2 6} {3 7}
//
// ZeRO divides dense parameters over all ranks that hold the same elements, or over runs of fewer. Then each shard has replicas
// (zero/shard_axis.h). At stage 3, weights that have been gathered once in a step may be kept in shards of still shorter runs.
//
//   8 ranks, mics_shard_size 4, zero_hpz_partition_size 2
//     shards      {0 1 2 3} {4 5 6 7}
//     replicas    {0 4} {1 5} {2 6} {3 7}
//     secondary   {0 1} {2 3} {4 5} {6 7}
#pragma once

#include "core/axis.h"
#include "core/parameter_spec.h"
#include "engine/mesh.h"

namespace trivet {

struct Config;

// The axes of Mesh::view(sharing) along which ranks hold the same elements of such a parameter, so that ZeRO may divide them,
// and sum gradients over them.
constexpr AxisSet equal_over(Sharing) { return {Axis::Data, Axis::Context}; }

// The axes of the mesh along which ranks read different samples: their product times the accumulation and the micro batch is
// the global batch. Context ranks read different parts of the same samples.
constexpr AxisSet batch_axes() { return Axis::Data; }

// The way in which the ranks that hold the same elements of dense parameters divide them.
struct Sharding {
  int shards = 1;     // ranks of a run
  int replicas = 1;   // ranks that hold the same shard
  int secondary = 1;  // ranks that together keep a second copy of gathered weights; 1: none is kept
};
// Throws ConfigError if zero_optimization.mics_shard_size or zero_hpz_partition_size does not divide what it has to.
Sharding sharding_of(const Config& config, const Mesh& mesh);

}  // namespace trivet
