// The sections of a Config that say where weights, gradients and optimizer states are kept: zero_optimization, aio.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/enum_names.h"
#include "pipeline/passes/unshard_release.h"

namespace trivet {

enum class OffloadDevice { None, Cpu, Nvme };

template <>
struct EnumNames<OffloadDevice> {
  static constexpr std::array<std::pair<std::string_view, OffloadDevice>, 3> table{
      {{"none", OffloadDevice::None}, {"cpu", OffloadDevice::Cpu}, {"nvme", OffloadDevice::Nvme}}};
};

// Where master weights and optimizer states are kept (ZeRO-Offload, Ren et al. 2021; ZeRO-Infinity, Rajbhandari et al. 2021).
struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path;
  int64_t buffer_count = 4;                            // staging buffers, each for one tensor of a sub-group
  bool pipeline_read = false, pipeline_write = false;  // while another sub-group is updated
  double ratio = 1.0;                                  // share of the optimizer state that is offloaded
};

// Where sharded parameters are kept, at stage 3.
struct OffloadParamConfig {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path;
  int64_t buffer_count = 5, buffer_size = 100'000'000;  // elements
  int64_t max_in_cpu = 1'000'000'000;                   // elements per rank that stay in host memory
};

// The way in which the files of offloaded data are read and written.
struct AioConfig {
  int64_t block_size = 1048576, queue_depth = 8, intra_op_parallelism = 1;
};

struct ZeroConfig {
  int stage = 0;
  bool reduce_scatter = true, allgather_partitions = true;
  int64_t reduce_bucket_size = 500'000'000, allgather_bucket_size = 500'000'000;
  bool overlap_comm = false;  // default true at stage 3 (the parser sets it)
  // Ranks that divide parameters into shards; -1 or 0: all that hold the same parameters. Others hold replicas of the shards
  // (MiCS, Zhang et al. 2022; hybrid sharding, Zhao et al. 2023).
  int64_t mics_shard_size = -1;
  // Ranks that together keep a second copy of gathered weights for the rest of a step; 1: none (ZeRO++, Wang et al. 2023).
  int64_t zero_hpz_partition_size = 1;
  // ZeRO++, too: gathers of weights in 8 bits, of all or only of those that are not trained; sums of gradients in 4 bits.
  bool zero_quantized_weights = false, zero_quantized_nontrainable_weights = false, zero_quantized_gradients = false;
  int64_t sub_group_size = 1'000'000'000;
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_param_persistence_threshold = 100'000;
  int64_t stage3_model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t stage3_max_live_parameters = 1'000'000'000;
  int64_t stage3_max_reuse_distance = 1'000'000'000;
  pipeline::UnshardRelease stage3_release = pipeline::UnshardRelease::Distance;
  OffloadParamConfig offload_param;
  OffloadOptimizerConfig offload_optimizer;
};

}  // namespace trivet
