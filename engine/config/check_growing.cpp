// Data that grows has no size before its last epoch, so whatever needs the size of the data before the run is refused.
#include <fmt/format.h>

#include "engine/config/config.h"
#include "engine/config/refuse.h"
#include "model/family.h"

namespace trivet::config {

void check_growing_data(const Config& config) {
  const DataConfig& data = config.data;
  if (!data.grows) return;
  const auto refuse_with = [&](const char* key, const std::string& value, const std::string& why) {
    refuse(config, key, fmt::format("{} is not accepted with data.grows: {}", value, why));
  };
  if (model::family_of(config.model.type).reads_images)
    refuse(config, "data.grows", "true needs a model that reads text; use false");
  if (!data.sources.empty())
    refuse_with("data.sources", "a mixture", "its shares are of sources that do not change; name one folder in data.train");
  if (data.sampler == SamplerKind::PyTorch)
    refuse_with("data.sampler", "\"pytorch\"", "in its order all epochs have the same samples; use \"trivet\"");
  if (data.read_as != ReadAs::Auto)
    refuse_with("data.read_as", fmt::format("\"{}\"", name_of(data.read_as)), "it reads .tokens files; leave it out");
  if (data.validation_fraction > 0)
    refuse_with("data.validation_fraction", fmt::format("{}", data.validation_fraction),
                "what is held out would have to change with the data; use 0, and name other data in data.validation");
  if (config.training.epochs > 0)
    refuse_with("training.epochs", fmt::format("{}", config.training.epochs),
                "the number of steps of an epoch is known only when it begins; use training.steps");
  if (config.model.objective == model::Objective::Dpo)
    refuse_with("training.objective", "\"dpo\"",
                "the reference model reads all pairs before the first step; use false for data.grows");
  if (config.lr_scaling != LrScaling::None && config.lr_scaling_warmup_epochs > 0)
    refuse_with("optimizer.lr_scaling.warmup_epochs", fmt::format("{}", config.lr_scaling_warmup_epochs),
                "the number of steps of an epoch is known only when it begins; use 0, or a scheduler that warms up in steps");
}

}  // namespace trivet::config
