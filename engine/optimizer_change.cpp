#include "engine/optimizer_change.h"

#include <fmt/format.h>

#include "core/error.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/config/load.h"
#include "engine/config/optimizer_traits.h"

namespace trivet {
namespace {

bool is_adam(OptimizerType type) { return type == OptimizerType::Adam || type == OptimizerType::AdamW; }

bool have_states_in_common(OptimizerType one, OptimizerType other) { return one == other || (is_adam(one) && is_adam(other)); }

}  // namespace

void refuse_another_optimizer(const Config& config, const checkpoint::LoadedStep& step) {
  if (step.config().empty()) return;
  const OptimizerConfig then = parse_config(step.config(), step.directory()).optimizer, &now = config.optimizer;
  const bool is_of_trivet = step.run_id() != checkpoint::kEmbeddedRunId;  // another trainer has no such flag
  const auto refuse = [&](const char* key, const std::string& ours, const std::string& theirs, const std::string& why) {
    throw ConfigError(fmt::format(
        "{}: {}: {} cannot continue from {}, which was saved with {}: {}; set it to {}{}", config.source, key, ours,
        step.directory(), theirs, why, theirs,
        is_of_trivet
            ? fmt::format(", or begin a new run with these weights and without the states: --init-from {}", step.directory())
            : ""));
  };
  if (!have_states_in_common(then.type, now.type))
    refuse("optimizer.type", fmt::format("\"{}\"", name_of(now.type)), fmt::format("\"{}\"", name_of(then.type)),
           "what one optimizer has kept of the steps so far means nothing to the other");
  if (optimizer_state_names(then) != optimizer_state_names(now))
    refuse("optimizer.params.momentum", fmt::format("{}", now.momentum), fmt::format("{}", then.momentum),
           then.momentum > 0 ? "its momentum would be lost" : "it has no momentum");
}

}  // namespace trivet
