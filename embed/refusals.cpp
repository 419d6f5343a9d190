#include "embed/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/config/refuse.h"
#include "engine/optimizer/lr_schedule.h"

namespace trivet::embed {
namespace {

// Sections and keys of what the trainer itself does.
constexpr auto kOfTrainers = std::to_array<std::string_view>({"model",
                                                              "data",
                                                              "dpo",
                                                              "vocabulary_size",
                                                              "curriculum_learning",
                                                              "data_efficiency",
                                                              "pipeline",
                                                              "activation_checkpointing",
                                                              "cuda_graph",
                                                              "dataloader_drop_last",
                                                              "checkpoint",
                                                              "steps_per_print",
                                                              "wall_clock_breakdown",
                                                              "memory_breakdown",
                                                              "run",
                                                              "csv_monitor",
                                                              "tensorboard",
                                                              "timeline",
                                                              "flops_profiler",
                                                              "comms_logger",
                                                              "autotuning",
                                                              "training.evaluate_every",
                                                              "training.evaluate_every_epochs",
                                                              "training.evaluate_samples"});
constexpr std::string_view kOfBoth = "checkpoint.directory";

bool is_part_of(std::string_view key, std::string_view section) {
  return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
}

}  // namespace

std::vector<std::string> unused_keys(const Config& config) {
  std::vector<std::string> keys;
  for (const GivenKey& given : config.given) {
    const auto* section = std::ranges::find_if(kOfTrainers, [&](auto one) { return is_part_of(given.path, one); });
    if (section == kOfTrainers.end() || given.path == kOfBoth) continue;
    const std::string name(is_part_of(kOfBoth, *section) ? std::string_view(given.path) : *section);
    if (std::ranges::find(keys, name) == keys.end()) keys.push_back(name);
  }
  return keys;
}

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
