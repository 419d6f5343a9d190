#include "engine/sharing.h"

#include <fmt/format.h>

#include "engine/config/config.h"
#include "engine/config/refuse.h"

namespace trivet {

// A second copy over all ranks that divide the weights would be the same as the first.
Sharding sharding_of(const Config& config, const Mesh& mesh) {
  const ZeroConfig& zero = config.zero;
  const auto holders = static_cast<int64_t>(mesh.size(equal_over(Sharing::Dense)));
  const int64_t shards = zero.stage > 0 && zero.mics_shard_size > 0 ? zero.mics_shard_size : holders;
  if (holders % shards != 0)
    config::refuse(config, "zero_optimization.mics_shard_size",
                   fmt::format("{} does not divide the {} rank{} that hold{} the same parameters; use a divisor, or -1", shards,
                               holders, holders == 1 ? "" : "s", holders == 1 ? "s" : ""));
  const int64_t secondary = zero.stage == 3 ? zero.zero_hpz_partition_size : 1;
  if (shards % secondary != 0)
    config::refuse(config, "zero_optimization.zero_hpz_partition_size",
                   fmt::format("{} does not divide the {} rank{} that divide{} the weights; use a divisor, or 1", secondary,
                               shards, shards == 1 ? "" : "s", shards == 1 ? "s" : ""));
  return {.shards = static_cast<int>(shards),
          .replicas = static_cast<int>(holders / shards),
          .secondary = secondary < shards ? static_cast<int>(secondary) : 1};
}

}  // namespace trivet
