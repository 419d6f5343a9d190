#include "engine/resumed_config.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"
#include "core/shell_words.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/config/mistakes.h"
#include "engine/config/optimizer_traits.h"
#include "engine/config/refuse.h"

namespace trivet {
namespace {

bool is_adam(OptimizerType type) { return type == OptimizerType::Adam || type == OptimizerType::AdamW; }

bool have_states_in_common(OptimizerType one, OptimizerType other) { return one == other || (is_adam(one) && is_adam(other)); }

bool orders_samples(const std::string& key, const Config& config) {
  const bool drops = key == "data.drop_last" || key == "dataloader_drop_last";
  return key == "data.shuffle" || key == "data.sampler" || (drops && config.data.sampler == SamplerKind::PyTorch);
}

// "sft" has the loss of "next_token".
bool changes_objective(const ConfigDifference& change, const Config& config) {
  const std::string dpo = "\"dpo\"";
  if (change.path == "training.objective") return change.before == dpo || change.after == dpo;
  return config.model.objective == model::Objective::Dpo && change.path.starts_with("dpo.");
}

// The key is that of the weights, which the config and the command leave it to.
[[noreturn]] void refuse_other_weights(const Config& config, const ConfigDifference& change,
                                       const checkpoint::LoadedStep& step) {
  const char* const key = is_given(config, "model.from") ? "model.from" : "--init-from";
  throw ConfigError(fmt::format(
      "{}: {} {} is another model: its {} is {}, but {} was saved with {}; a resumed run has the "
      "model of its checkpoint, so leave {} out, or name the weights that the run began with",
      config.source, key, printable(config.model_from), change.path, change.after, step.directory(), change.before, key));
}

// Shapes do not show how the model computes with its weights, nor the order of the samples, so the configs are compared.
void refuse_another_model(const Config& config, const checkpoint::LoadedStep& step) {
  if (step.config().empty()) return;
  for (const auto& change : diff(parse_config(step.config(), step.directory()), config)) {
    const bool may_change = change.path == "model.dropout" || change.path == "model.initializer_range" ||
                            change.path == "model.from" || change.path == "model.experts.bias_update_rate" ||
                            change.path == "model.vocabulary";  // another way to name the same tokens; sizes are compared
    const bool another_model = change.path.starts_with("model.") || changes_objective(change, config);
    if (may_change || (!another_model && !orders_samples(change.path, config))) continue;
    const GivenKey* const given = config::find_given(config, change.path);
    const bool is_of_weights = !given || given->line == config::kOfWeights.line;
    if (change.path.starts_with("model.") && !config.model_from.empty() && is_of_weights)
      refuse_other_weights(config, change, step);
    throw ConfigError(fmt::format("{}: {}: {} does not match {}, which was saved with {}; set it to {}",
                                  config::source_of(config, change.path), change.path, change.after, step.directory(),
                                  change.before, change.before));
  }
}

}  // namespace

void refuse_another_optimizer(const Config& config, const checkpoint::LoadedStep& step) {
  if (step.config().empty()) return;
  const OptimizerConfig then = parse_config(step.config(), step.directory()).optimizer, &now = config.optimizer;
  const bool is_of_trivet = step.run_id() != checkpoint::kEmbeddedRunId;  // another trainer has no such flag
  const auto refuse = [&](const char* key, const std::string& ours, const std::string& theirs, const std::string& why) {
    throw ConfigError(
        fmt::format("{}: {}: {} cannot continue from {}, which was saved with {}: {}; set it to {}{}",
                    config::source_of(config, key), key, ours, step.directory(), theirs, why, theirs,
                    is_of_trivet ? fmt::format(", or begin a new run with these weights and without the states: --init-from {}",
                                               quoted(step.directory()))
                                 : ""));
  };
  if (!have_states_in_common(then.type, now.type))
    refuse("optimizer.type", fmt::format("\"{}\"", name_of(now.type)), fmt::format("\"{}\"", name_of(then.type)),
           "what one optimizer has kept of the steps so far means nothing to the other");
  if (optimizer_state_names(then) != optimizer_state_names(now))
    refuse("optimizer.params.momentum", fmt::format("{}", now.momentum), fmt::format("{}", then.momentum),
           then.momentum > 0 ? "its momentum would be lost" : "it has no momentum");
}

void refuse_another_run(const Config& config, const ResolvedBatch& batch, const checkpoint::LoadedStep& step) {
  const checkpoint::RunState& state = step.run_state();
  const auto must_continue = [&](const char* key, int64_t then, int64_t now) {
    if (then != now)
      throw ConfigError(fmt::format("{}: {}: {} does not match {}, which was saved with {}; set it to {}",
                                    config::source_of(config, key), key, now, step.directory(), then, then));
  };
  must_continue("train_batch_size", state.train_batch_size, batch.train_batch_size);  // the data order depends on these two
  must_continue("training.seed", state.seed, config.training.seed);
  if (config.reproducible == Reproducible::Layout) {  // gradients are rounded per microbatch, whose sums are made of leaves
    must_continue("train_micro_batch_size_per_gpu", state.micro_batch_size, batch.micro_batch_size);
    if (!step.config().empty())
      if (const Config then = parse_config(step.config(), step.directory()); then.reproducible == Reproducible::Layout) {
        must_continue("parallel.context_grain", then.parallel.context_grain, config.parallel.context_grain);
        must_continue("activation_checkpointing.mlp_slice_tokens", then.mlp_slice_tokens, config.mlp_slice_tokens);
      }
  }
  refuse_another_model(config, step);
  refuse_another_optimizer(config, step);
}

}  // namespace trivet
