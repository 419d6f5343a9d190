#include "embed/refusals.h"

#include <fmt/format.h>

#include "engine/config/optimizer_states.h"
#include "engine/config/refuse.h"
#include "engine/lr_schedule.h"

namespace trivet::embed {

void refuse_unused(const Config& config, std::span<const Parameter> parameters) {
  const auto refuse = [&](const char* key, const std::string& what) { config::refuse(config, key, what); };
  const auto axis = [&](const char* key, int64_t size) {
    if (size > 1)
      refuse(key, fmt::format("{} is not accepted for an embedded optimizer, which knows nothing of the layers; use 1", size));
  };
  axis("parallel.tensor", config.parallel.tensor);
  axis("parallel.pipeline", config.parallel.pipeline);
  if (config.device == DeviceChoice::Cuda)
    refuse("device", "\"cuda\" is not accepted for an embedded optimizer, whose tensors are in host memory; use \"cpu\"");
  if (may_send_signs(config.optimizer.type))
    refuse("optimizer.type", fmt::format("\"{}\" is not accepted for an embedded optimizer, which sums gradients; use another",
                                         name_of(config.optimizer.type)));
  if (config.zero.offload_optimizer.device != OffloadDevice::None)
    refuse("zero_optimization.offload_optimizer.device", "is not accepted for an embedded optimizer; use \"none\"");
  if (config.zero.offload_param.device != OffloadDevice::None)
    refuse("zero_optimization.offload_param.device", "is not accepted for an embedded optimizer; use \"none\"");
  if (config.audit.every_steps > 0)
    refuse("audit.every_steps",
           fmt::format("{} is not accepted for an embedded optimizer, which cannot repeat a microbatch; use 0",
                       config.audit.every_steps));
  check_steps_are_known(config);
  if (parameters.empty()) config::refuse(config, "parameters", "none were registered; give at least one");
}

}  // namespace trivet::embed
