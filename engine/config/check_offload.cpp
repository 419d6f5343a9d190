// Checks the offload keys before the run. DeepSpeed asserts these constraints in the first step, or ignores them.
#include <fmt/format.h>

#include "engine/config/config.h"
#include "engine/config/optimizer_traits.h"
#include "engine/config/refuse.h"

namespace trivet::config {
namespace {

const std::string kParam = "zero_optimization.offload_param", kOptimizer = "zero_optimization.offload_optimizer";

template <typename Part>
void check_path(const Config& config, const std::string& path, const Part& offload) {
  if (offload.device == OffloadDevice::Nvme && offload.nvme_path.empty())
    refuse(config, path + ".device", fmt::format("\"nvme\" needs {}.nvme_path, a folder for each rank's file", path));
}

void check_offload_param(const Config& config) {
  const OffloadParamConfig& param = config.zero.offload_param;
  if (param.device == OffloadDevice::None) return;
  if (config.zero.stage != 3)
    refuse(config, kParam + ".device",
           fmt::format("parameters can be offloaded only at ZeRO stage 3, but the stage is {}", config.zero.stage));
  check_path(config, kParam, param);
}

// The weights of a float32 model are its master weights, so they do not count as optimizer state.
std::vector<std::string> offloaded_tensors(const Config& config) {
  std::vector<std::string> names = optimizer_state_names(config.optimizer);
  if (config.model_dtype() != DType::Float32) names.insert(names.begin(), "master weights");
  return names;
}

// Each sub-group in memory needs a buffer for each of its tensors.
void check_buffers(const Config& config) {
  const OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  const std::vector<std::string> names = offloaded_tensors(config);
  const int64_t tensors = std::ssize(names), sets = 1 + optimizer.pipeline_read + optimizer.pipeline_write;
  if (tensors == 0)
    refuse(config, kOptimizer + ".device",
           fmt::format(
               "\"nvme\" has nothing to offload: optimizer {} without momentum keeps no state for an fp32 model; use \"none\"",
               name_of(config.optimizer.type)));
  if (optimizer.buffer_count >= sets * tensors) return;
  const std::string why =
      sets == 1 ? ""
                : fmt::format(" of each of {} sub-groups in memory with {}", sets,
                              optimizer.pipeline_read && optimizer.pipeline_write ? "pipeline_read and pipeline_write"
                              : optimizer.pipeline_read                           ? "pipeline_read"
                                                                                  : "pipeline_write");
  refuse(config, kOptimizer + ".buffer_count",
         fmt::format("{} is too small for {} tensors ({}){}; use at least {}", optimizer.buffer_count, tensors,
                     fmt::join(names, ", "), why, sets * tensors));
}

void check_offload_optimizer(const Config& config) {
  const OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  if (optimizer.device == OffloadDevice::None) return;
  if (config.zero.stage == 0)
    refuse(config, kOptimizer + ".device", "optimizer state can be offloaded only at ZeRO stages 1 to 3, but the stage is 0");
  check_path(config, kOptimizer, optimizer);
  if (optimizer.ratio < 1 && config.zero.stage != 3)
    refuse(config, kOptimizer + ".ratio",
           fmt::format("a ratio below 1 needs ZeRO stage 3, but the stage is {}", config.zero.stage));
  if (optimizer.device == OffloadDevice::Nvme) check_buffers(config);
}

void check_offload_of_inputs(const Config& config) {
  if (config.cpu_checkpointing && config.recompute != Recompute::Full)
    refuse(
        config, "activation_checkpointing.cpu_checkpointing",
        fmt::format("true moves the inputs of recomputed blocks, but no block is recomputed with activation_checkpointing.mode "
                    "\"{}\"; use \"full\", or cpu_checkpointing false",
                    name_of(config.recompute)));
}

}  // namespace

void check_offload(const Config& config) {
  check_offload_param(config);
  check_offload_optimizer(config);
  check_offload_of_inputs(config);
}

}  // namespace trivet::config
