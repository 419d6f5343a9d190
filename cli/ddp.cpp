#include "cli/ddp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/dtype.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"

namespace trivet::cli {
namespace {

constexpr int64_t kBucketBytes = int64_t{25} << 20;  // bucket_cap_mb of DistributedDataParallel
const char* const kBucket = "zero_optimization.reduce_bucket_size";
const char* const kOverlap = "zero_optimization.overlap_comm";

void refuse_other_axes(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::pair<const char*, int64_t> axes[] = {{"parallel.tensor", parallel.tensor},
                                                  {"parallel.pipeline", parallel.pipeline},
                                                  {"parallel.context", parallel.context},
                                                  {"parallel.expert", parallel.expert}};
  for (const auto& [key, size] : axes)
    if (size > 1)
      config::refuse(
          config, key,
          fmt::format("{} divides the model, and with --ddp every rank has all of it; leave --ddp out, or set {} to 1", size,
                      key));
}

void refuse_partitions(const Config& config) {
  if (config.zero.stage > 0)
    config::refuse(
        config, "zero_optimization.stage",
        fmt::format("{} divides what the ranks keep, and with --ddp every rank keeps all of it; leave --ddp out, or set "
                    "zero_optimization.stage to 0",
                    config.zero.stage));
  const auto refuse_offload = [&](const char* key, OffloadDevice device) {
    if (device != OffloadDevice::None)
      config::refuse(
          config, key,
          fmt::format("\"{}\" is not accepted with --ddp; leave --ddp out, or remove this section", name_of(device)));
  };
  refuse_offload("zero_optimization.offload_param.device", config.zero.offload_param.device);
  refuse_offload("zero_optimization.offload_optimizer.device", config.zero.offload_optimizer.device);
}

}  // namespace

std::vector<std::string> ddp_overrides(const Config& config) {
  refuse_other_axes(config);
  refuse_partitions(config);
  std::vector<std::string> set;
  if (!is_given(config, kBucket))
    set.push_back(fmt::format("{}={}", kBucket, kBucketBytes / static_cast<int64_t>(size_of(config.gradient_dtype()))));
  if (!is_given(config, kOverlap)) set.push_back(fmt::format("{}=true", kOverlap));
  return set;
}

std::string describe_ddp(const Config& config, const std::vector<std::string>& set) {
  const auto bytes =
      static_cast<double>(config.zero.reduce_bucket_size) * static_cast<double>(size_of(config.gradient_dtype()));
  return fmt::format("every rank has all weights; gradients are averaged in buckets of {:.4g} MiB {}{}", bytes / (1 << 20),
                     config.zero.overlap_comm ? "while backward runs" : "after backward",
                     set.empty() ? "" : fmt::format(" ({})", fmt::join(set, ", ")));
}

}  // namespace trivet::cli
