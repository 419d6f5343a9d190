#include "engine/rank_resources.h"

namespace trivet {

UpdateResources RankResources::for_updates() const {
  const Channel* const experts = channels.find(Purpose::Data, Sharing::Expert);
  return {.kernels = kernels,
          .allocator = allocator,
          .meter = meter,
          .buffers = buffers,
          .collectives = collectives,
          .offload = offload,
          .all = channels.group(Purpose::Control),
          .of_stage = channels.group(Purpose::Part),
          .shards = {&channels.group(Purpose::Data), experts ? experts->group.get() : nullptr},
          .stream = channels.stream(Purpose::Control)};
}

std::vector<zero::ShardAxis> RankResources::shard_axes() const {
  const Channel &gather = channels[Purpose::Gather], &reduce = channels[Purpose::Reduce];
  const auto find = [&](Purpose purpose) {
    const Channel* channel = channels.find(purpose);
    return channel ? channel->group.get() : nullptr;
  };
  std::vector<zero::ShardAxis> axes{{*gather.group, *gather.stream, *reduce.group, *reduce.stream, find(Purpose::Replicas),
                                     find(Purpose::Secondary), find(Purpose::ReduceNear), find(Purpose::ReduceFar)}};
  if (const Channel* const experts = channels.find(Purpose::Gather, Sharing::Expert)) {
    const Channel& sums = channels.of(Purpose::Reduce, Sharing::Expert);
    axes.push_back({*experts->group, *experts->stream, *sums.group, *sums.stream});
  }
  return axes;
}

zero::CollectiveOptions collective_options(const ZeroConfig& zero) {
  return {.reduce_bucket_elements = zero.reduce_bucket_size,
          .gather_bucket_elements = zero.allgather_bucket_size,
          .reduce_scatter = zero.reduce_scatter,
          .allgather_partitions = zero.allgather_partitions,
          .quantized_gradients = zero.zero_quantized_gradients};
}

// If only the weights are in a file, the number of their buffers decides what is pipelined. Copies between a device and its
// host always overlap with the use of another piece (zero/host_side.h).
zero::StagingOptions staging_options(const Config& config) {
  const OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  const OffloadParamConfig& param = config.zero.offload_param;
  zero::StagingOptions options{.most_elements = config.zero.sub_group_size};
  if (optimizer.device == OffloadDevice::Nvme) {
    options.read_ahead = optimizer.pipeline_read;
    options.write_behind = optimizer.pipeline_write;
  } else if (param.device == OffloadDevice::Nvme) {
    options.read_ahead = param.buffer_count > 1;
    options.write_behind = param.buffer_count > 2;
  } else {
    options.read_ahead = options.write_behind = config.uses_host_side();
  }
  return options;
}

}  // namespace trivet
