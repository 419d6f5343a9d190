// Defaults that depend on the kind of model, data, optimizer and scheduler, on the ZeRO stage and on the folder of the run.
// Each has a default_note in the table.
#include <filesystem>

#include "engine/config/key_table.h"
#include "engine/config/optimizer_traits.h"
#include "model/family.h"

namespace trivet::config {

void set_dependent_defaults(Config& config) {
  config.model.tied_embedding = model::family_of(config.model.type).tied_embedding;
  if (config.model.rotary_scaling.type == model::RotaryScalingType::Yarn)
    config.model.rotary_scaling.high_frequency_factor = 32;
  config.zero.overlap_comm = config.zero.stage == 3;
  if (config.data.grows) config.data.validation_fraction = 0;
  OptimizerConfig& optimizer = config.optimizer;
  const OptimizerTraits traits = traits_of(optimizer.type);
  optimizer.lr = traits.lr;
  optimizer.epsilon = traits.epsilon;
  optimizer.momentum = traits.momentum;
  optimizer.nesterov = traits.nesterov;
  SchedulerConfig& scheduler = config.scheduler;
  const bool warms_up = scheduler.type == SchedulerType::WarmupLR || scheduler.type == SchedulerType::WarmupDecayLR ||
                        scheduler.type == SchedulerType::WarmupCosineLR;
  if (warms_up) scheduler.warmup_num_steps = 1000;
  if (scheduler.type == SchedulerType::WarmupDecayLR) scheduler.warmup_max_lr = 1e-3;
  if (!config.run.directory.empty())
    config.timeline.directory = (std::filesystem::path(config.run.directory) / "timeline").string();
}

}  // namespace trivet::config
