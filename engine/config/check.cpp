// Checks the constraints between keys.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "engine/config/curriculum.h"
#include "engine/config/gradient_sum.h"
#include "engine/config/json_reader.h"
#include "engine/config/key_table.h"
#include "engine/config/load.h"
#include "engine/config/mistakes.h"
#include "engine/config/refuse.h"
#include "engine/config/sample_curriculum.h"
#include "engine/config/token_drop.h"
#include "model/family.h"

namespace trivet {
namespace {

using config::find_given;
using config::refuse;

void check_model(const Config& config) {
  if (const auto problem = model::find_problem(config.model)) refuse(config, "model." + problem->key, problem->text);
  config::check_token_drop(config);
}

void check_data(const Config& config) {
  const DataConfig& data = config.data;
  if (data.sources.empty()) return;
  if (!data.train.empty()) refuse(config, "data.sources", "data.train is given, too; keep one of them");
  if (data.sampler == SamplerKind::PyTorch)
    refuse(config, "data.sources", "data.sampler \"pytorch\" has an order for one source only; use \"trivet\"");
}

void check_objective(const Config& config) {
  const model::Objective objective = config.model.objective;
  if (objective == model::Objective::NextToken) return;
  const auto name = fmt::format("\"{}\"", name_of(objective));
  const auto refuse_with = [&](const std::string& key, const std::string& value, const std::string& why) {
    refuse(config, key, fmt::format("{} is not accepted with training.objective {}: {}", value, name, why));
  };
  if (model::family_of(config.model.type).reads_images)
    refuse(config, "training.objective", fmt::format("{} needs a model that reads text; use \"next_token\"", name));
  if (config.data.loss_on == LossOn::All)
    refuse_with("data.loss_on", "\"all\"", "its loss does not count prompts; leave it out");
  if (objective != model::Objective::Dpo) return;
  if (config.curriculum.enabled)
    refuse_with(config::switch_of_lengths(config), "true", "answers are compared as a whole; use false");
  if (config.data.packing == Packing::Whole || config.data.packing == Packing::Single)
    refuse_with("data.packing", fmt::format("\"{}\"", name_of(config.data.packing)),
                "each answer has a row of its own; leave it out, or use \"isolated\" for several in a row");
}

void check_training(const Config& config) {
  if (config.training.steps > 0 && config.training.epochs > 0)
    refuse(config, "training.epochs", "steps and epochs are both given; keep one");
  if (config.gradient_clipping < 0) refuse(config, "gradient_clipping", "is negative; use 0 for no clipping");
  const bool may_come_with_data = model::family_of(config.model.type).reads_images;  // known when the folder is opened
  const bool has_validation = !config.data.validation.empty() || config.data.validation_fraction > 0 || may_come_with_data;
  const auto check_validation = [&](const char* key, int64_t every) {
    if (every > 0 && config.data.is_given() && !has_validation)
      refuse(config, key,
             fmt::format("{} needs something to evaluate on; give data.validation{}, or use 0", every,
                         config.data.grows ? "" : " or a data.validation_fraction above 0"));
  };
  check_validation("training.evaluate_every", config.training.evaluate_every);
  check_validation("training.evaluate_every_epochs", config.training.evaluate_every_epochs);
  if (config.training.early_stopping_patience > 0 && !config.training.evaluates())
    refuse(config, "training.early_stopping_patience",
           fmt::format("{} counts evaluations, and this run has none; give training.evaluate_every_epochs or "
                       "training.evaluate_every, or use 0",
                       config.training.early_stopping_patience));
}

void check_sampler(const Config& config) {
  if (config.data.sampler == SamplerKind::PyTorch && config.reproducible == Reproducible::Layout)
    refuse(config, "data.sampler",
           "\"pytorch\" is not accepted with reproducible \"layout\": in PyTorch's order the samples of a microbatch depend on "
           "the number of ranks; use \"trivet\"");
}

void check_timeline(const Config& config) {
  const TimelineConfig& timeline = config.timeline;
  const int64_t end = config.training.steps;
  if (timeline.step == 0 || end == 0 || timeline.step + timeline.steps - 1 <= end) return;
  const bool is_late = timeline.step > end, is_long = timeline.steps > end;
  const std::string accepted =
      is_late && is_long ? fmt::format("1, and at most {} timeline.steps", end)
      : is_long          ? fmt::format("at most {} timeline.steps", end - timeline.step + 1)
                : fmt::format("a step of at most {}{}", end - timeline.steps + 1, is_late ? "" : ", or fewer timeline.steps");
  refuse(config, "timeline.step",
         fmt::format("{} and the {} steps after it are not all within training.steps {}; use {}", timeline.step,
                     timeline.steps - 1, end, accepted));
}

// The kernels write a parameter's gradient in the model's dtype or in float32.
void check_grad_accum_dtype(const Config& config) {
  const DType model = config.model_dtype();
  if (!config.grad_accum_dtype || *config.grad_accum_dtype == model || *config.grad_accum_dtype == DType::Float32) return;
  const std::string or_model = model == DType::Float32 ? "" : " or " + config::dtype_json(model);
  refuse(config, "data_types.grad_accum_dtype",
         fmt::format("{} is not accepted for a model in {}; use \"fp32\"{}", config::dtype_json(*config.grad_accum_dtype),
                     config::dtype_json(model), or_model));
}

void check_param_dtype(const Config& config) {
  const GivenKey* given = find_given(config, "data_types.param_dtype");
  if (!given || given->value == "null" || given->value == "\"auto\"") return;
  const DType model = config.model_dtype();
  const bool fp16 = given->value == "\"fp16\"" || given->value == "\"float16\"",
             bf16 = given->value == "\"bf16\"" || given->value == "\"bfloat16\"";
  if (model == (fp16 ? DType::Float16 : bf16 ? DType::BFloat16 : DType::Float32)) return;
  const char* const advice = fp16   ? "set fp16.enabled to true"
                             : bf16 ? "set bf16.enabled to true"
                                    : "set fp16.enabled and bf16.enabled to false";
  refuse(config, "data_types.param_dtype",
         fmt::format("{} is not accepted for a model in {}; {}, or remove the key", given->value, config::dtype_json(model),
                     advice));
}

void check_precision(const Config& config) {
  const Fp16Config& fp16 = config.fp16;
  if (fp16.enabled && fp16.loss_scale == 0 && std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power)) < fp16.min_loss_scale)
    refuse(config, "fp16.min_loss_scale",
           fmt::format("{} is more than the initial scale, 2^{}", fp16.min_loss_scale, fp16.initial_scale_power));
  if (config.fp16.enabled && config.bf16.enabled) refuse(config, "bf16.enabled", "fp16 and bf16 are both enabled; enable one");
  check_grad_accum_dtype(config);
  check_param_dtype(config);
}

// Checks gradient_allreduce_op "sum". It does not suit batch_norm, whose running averages are no gradients.
void check_gradient_sum(const Config& config) {
  if (!config::sums_gradients(config)) return;
  const auto refuse_with = [&](const std::string& what) {
    refuse(config, "gradient_allreduce_op", fmt::format("\"sum\" is not accepted with {}; use \"mean\"", what));
  };
  if (config.reproducible == Reproducible::Layout)
    refuse_with("reproducible \"layout\", because the sum grows with the number of ranks");
  const std::vector<std::string>& network = config.model.network;
  if (std::any_of(network.begin(), network.end(), [](const std::string& layer) { return layer.starts_with("batch_norm"); }))
    refuse_with("batch_norm, whose running averages are reduced with the gradients");
}

// tensor_parallel.enabled false must not go with a size.
void check_tensor_switch(const Config& config) {
  const GivenKey* enabled = find_given(config, "tensor_parallel.enabled");
  const GivenKey* size = find_given(config, "tensor_parallel.autotp_size");
  if (enabled && size && enabled->value == "false" && config.parallel.tensor > 1)
    refuse(config, "tensor_parallel.autotp_size",
           fmt::format("{} contradicts tensor_parallel.enabled false; use 0, or leave the switch out", size->value));
}

void check_audit(const Config& config) {
  if (config.audit.every_steps > 0 && config.reproducible != Reproducible::Layout)
    refuse(config, "audit.every_steps",
           fmt::format(
               "{} needs reproducible \"layout\", in which every rank computes the same bits for a microbatch; set that, or "
               "use 0",
               config.audit.every_steps));
}

// However they are written: "/a/b", "/a//b/" and "/a/./b" are one.
bool same_path(const std::string& one, const std::string& other) {
  const auto plain = [](const std::string& path) { return (std::filesystem::path(path) / "").lexically_normal(); };
  return plain(one) == plain(other);
}

void check_keep_best(const Config& config) {
  if (!config.checkpoint.keep_best) return;
  if (config.checkpoint.directory.empty())
    refuse(config, "checkpoint.keep_best", "true needs checkpoint.directory; give it, or use false");
  if (!config.training.evaluates())
    refuse(config, "checkpoint.keep_best",
           "true compares evaluations, and this run has none; give training.evaluate_every_epochs or training.evaluate_every, "
           "or use false");
}

void check_checkpoint(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  check_keep_best(config);
  if (!checkpoint.saves_to_memory()) return;
  if (checkpoint.memory.directory.empty())
    refuse(config, "checkpoint.memory.directory",
           "is not given; name a directory on a file system in memory, such as \"/dev/shm/NAME\", or set "
           "checkpoint.memory.every_steps to 0");
  if (checkpoint.directory.empty())
    refuse(config, "checkpoint.memory.every_steps",
           fmt::format("{} needs checkpoint.directory: memory is lost with its host, and what it holds is removed when the run "
                       "has ended",
                       checkpoint.memory.every_steps));
  if (same_path(checkpoint.directory, checkpoint.memory.directory))
    refuse(config, "checkpoint.memory.directory",
           fmt::format("\"{}\" is also checkpoint.directory; name two", checkpoint.memory.directory));
}

// Checks what reproducible "layout" needs in order to give the same bits on every layout.
void check_reproducible(const Config& config) {
  if (config.reproducible != Reproducible::Layout) return;
  if (config.batch.micro_batch_size == 0)
    refuse(
        config, "reproducible",
        config.elasticity.enabled
            ? "\"layout\" needs a single one of elasticity.micro_batch_sizes: each microbatch's gradient is rounded, so the "
              "microbatch size must not depend on the number of ranks"
            : "\"layout\" needs train_micro_batch_size_per_gpu: each microbatch's gradient is rounded, so the microbatch size "
              "must not depend on the number of ranks, as it does with train_batch_size alone");
  if (config.batch.train_batch_size == 0)
    refuse(config, "reproducible",
           "\"layout\" needs train_batch_size: without it the global batch size, and so the whole training run, depends on the "
           "number of ranks");
  if (config.bf16.enabled && !config.bf16.check_grad_overflow)
    refuse(config, "bf16.check_grad_overflow",
           "false is not accepted with reproducible \"layout\", which drops out-of-range contributions from the sum and "
           "therefore has to skip the step; use true");
}

void check_optimizer(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.type == OptimizerType::AdamW && !optimizer.adam_w_mode)
    refuse(config, "optimizer.params.adam_w_mode", "false contradicts type AdamW; use type Adam");
  if (optimizer.type == OptimizerType::Lamb && optimizer.min_coefficient > optimizer.max_coefficient)
    refuse(config, "optimizer.params.min_coeff", "is larger than max_coeff");
  if (optimizer.type == OptimizerType::Sgd && optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0))
    refuse(config, "optimizer.params.nesterov", "needs a momentum above 0 and dampening 0");
  if (optimizer.type == OptimizerType::Muon && (optimizer.muon_lr > 0 || optimizer.adam_lr > 0) && !(optimizer.lr > 0))
    refuse(config, "optimizer.params.lr",
           fmt::format("{} is not accepted with muon_lr or adam_lr, which are scheduled in proportion to lr; use more than 0",
                       optimizer.lr));
  if (config.lr_scaling != LrScaling::None && config.lr_scaling_base_batch == 0)
    refuse(config, "optimizer.lr_scaling.rule",
           "needs optimizer.lr_scaling.base_batch_size, the batch size that lr was chosen for");
}

void check_total_steps(const Config& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  const std::string path = "scheduler.params.total_num_steps";
  if (scheduler.total_num_steps == 0 && config.training.epochs == 0)
    refuse(config, config.given.empty() ? path : "scheduler.type",
           fmt::format("\"{}\" needs {}, training.steps or training.epochs", name_of(scheduler.type), path));
}

void check_scheduler(const Config& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  switch (scheduler.type) {
    case SchedulerType::OneCycle:
      if (!config.given.empty() && !is_given(config, "scheduler.params.cycle_min_lr"))
        refuse(config, "scheduler.type", "\"OneCycle\" needs scheduler.params.cycle_min_lr");
      if (!config.given.empty() && !is_given(config, "scheduler.params.cycle_max_lr"))
        refuse(config, "scheduler.type", "\"OneCycle\" needs scheduler.params.cycle_max_lr");
      break;
    case SchedulerType::WarmupDecayLR:
    case SchedulerType::WarmupCosineLR:
    case SchedulerType::Linear:
    case SchedulerType::Cosine: check_total_steps(config); break;
    case SchedulerType::WarmupLR:
    case SchedulerType::LRRangeTest:
    case SchedulerType::Constant: break;
  }
}

// pipeline.stages and parallel.pipeline must not say different things.
void check_aliases(const Config& config) {
  for (const config::KeyEntry& entry : config::key_table().entries()) {
    const GivenKey* alias = find_given(config, entry.path);
    const GivenKey* key = entry.alias_of.empty() ? nullptr : find_given(config, entry.alias_of);
    if (!alias || !key || alias->value == entry.default_json) continue;
    if (!same_value(config::read_json(alias->value, entry.path), config::read_json(key->value, key->path)))
      refuse(config, entry.path, fmt::format("{} contradicts {} {}; keep one", alias->value, key->path, key->value));
  }
}

void check_curriculum_of_model(const Config& config) {
  config::check_curriculum(config, model::family_of(config.model.type).reads_images ? 0 : config.model.sequence_length);
}

using Check = void (*)(const Config&);

constexpr std::array<Check, 17> kChecksWithoutModel{check_data,
                                                    config::check_growing_data,
                                                    check_objective,
                                                    check_training,
                                                    check_sampler,
                                                    check_timeline,
                                                    check_precision,
                                                    check_reproducible,
                                                    check_gradient_sum,
                                                    check_tensor_switch,
                                                    check_audit,
                                                    check_checkpoint,
                                                    check_optimizer,
                                                    check_scheduler,
                                                    config::check_offload,
                                                    check_aliases,
                                                    config::check_parallel};
constexpr std::array<Check, 3> kChecksOfModel{config::check_layout_of_model, check_curriculum_of_model,
                                              config::check_sample_curriculum};

// ": optimizer." for "optimizer.params.lr": how a message about a key of the same section begins. Empty for a path of at most
// two names, whose contradictions name it.
std::string start_of_section(const std::string& path) {
  const size_t first = path.find('.'), second = path.find('.', first + 1);
  return first == std::string::npos || second == std::string::npos ? "" : ": " + path.substr(0, first + 1);
}

// Checks whether a message mentions one of the paths, or is about the section that it is deep inside of.
bool mentions(const std::string& message, const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    const std::string start = start_of_section(path);
    return message.find(path) != std::string::npos || (!start.empty() && message.find(start) != std::string::npos);
  });
}

}  // namespace

void check(const Config& config) {
  check_model(config);
  check_without_model(config);
  for (const Check check_one : kChecksOfModel) check_one(config);
}

void check_without_model(const Config& config) {
  for (const Check check_one : kChecksWithoutModel) check_one(config);
}

void config::add_contradiction_of(const std::function<void(Config&)>& step, Config& config,
                                  const std::vector<std::string>& unknown_values, Mistakes& mistakes) {
  try {
    step(config);
  } catch (const Contradiction& found) {
    if (!mentions(found.what(), unknown_values)) mistakes.add(found.at(), found.what());
  } catch (const ConfigError& found) {
    if (!mentions(found.what(), unknown_values)) mistakes.add(kNowhere, found.what());
  }
}

// Each check reports the first contradiction that it finds. The model's come last, because they compute with its sizes.
void config::add_contradictions(Config& config, const std::vector<std::string>& unknown_values, Mistakes& mistakes) {
  const size_t before = mistakes.size();
  const auto run = [&](Check check_one) { add_contradiction_of(check_one, config, unknown_values, mistakes); };
  // Only together with the keys of that model it is complete.
  const bool model_is_elsewhere = !config.model_from.empty() && !is_given(config, "model.type");
  if (!model_is_elsewhere) run(check_model);
  const bool model_is_sound =
      !model_is_elsewhere && mistakes.size() == before &&
      std::none_of(unknown_values.begin(), unknown_values.end(), [](const auto& path) { return path.starts_with("model"); });
  for (const Check check_one : kChecksWithoutModel) run(check_one);
  if (!model_is_sound) return;
  for (const Check check_one : kChecksOfModel) run(check_one);
}

}  // namespace trivet
