// The table of what a run does otherwise than DeepSpeed 0.19.8 with the same config. Most of it is defaults: keys that the file
// does not have. A line is printed whenever its difference applies to the run, whoever wrote the file; it is left out where a
// key of the file settles the matter ("gradient_clipping": 1.0, "optimizer": {"decay_all": false}).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/config/deepspeed.h"
#include "engine/config/gradient_sum.h"
#include "engine/config/json_reader.h"
#include "engine/config/key_table.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "engine/config/sample_curriculum.h"

namespace trivet {
namespace {

using namespace config;

// Kinds of lines in the order in which they are printed.
enum class Importance { Training, Rounding, Reports };

// The line of a difference; empty if it does not apply.
struct Difference {
  Importance importance;
  std::string (*line)(const Config& config);
};

bool is_auto_key(const Config& config, const std::string& path) {
  return std::any_of(config.automatic.begin(), config.automatic.end(), [&](const AutoKey& key) { return key.path == path; });
}

std::string name_of_dtype(DType dtype) {
  const std::string json = dtype_json(dtype);
  return json.substr(1, json.size() - 2);
}

// ---- what is trained

std::string of_precision(const Config& config) {
  const bool fp16 = is_auto_key(config, "fp16.enabled"), bf16 = is_auto_key(config, "bf16.enabled");
  if (config.model_dtype() != DType::Float32 || (!fp16 && !bf16)) return "";
  const std::string keys = fp16 && bf16 ? "fp16.enabled, bf16.enabled" : fp16 ? "fp16.enabled" : "bf16.enabled";
  return fmt::format(
      "{}: float32 trains, because \"auto\" is false; Hugging Face's Trainer takes --fp16 or --bf16 for it, here "
      "true does",
      keys);
}

std::string of_optimizer(const Config& config) {
  if (is_given(config, "optimizer.type")) return "";
  const OptimizerConfig& optimizer = config.optimizer;
  return fmt::format(
      "optimizer: there is no {}, so {} with lr {} and weight_decay {} trains{}; in DeepSpeed the program brings the "
      "optimizer",
      is_given(config, "optimizer") ? "type" : "section", name_of(optimizer.type), optimizer.lr, optimizer.weight_decay,
      is_given(config, "scheduler.type") ? "" : ", at a constant rate");
}

std::string of_decay(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (!(optimizer.weight_decay > 0) || optimizer.decay_all || is_given(config, "optimizer.decay_all")) return "";
  return fmt::format(
      "optimizer.params.weight_decay: biases and norms do not decay by {}; in DeepSpeed they do, unless the program groups its "
      "parameters; optimizer.decay_all true lets them decay here",
      optimizer.weight_decay);
}

std::string of_torch_adam(const Config& config) {
  const GivenKey* torch_adam = find_given(config, "optimizer.params.torch_adam");
  const bool decays_in_torch = torch_adam && torch_adam->value == "true" && config.optimizer.adam_w_mode;
  if (!decays_in_torch || is_given(config, "optimizer.params.weight_decay")) return "";
  return "optimizer.params.torch_adam: without weight_decay nothing decays; PyTorch's AdamW, which DeepSpeed takes, has a "
         "weight_decay of 0.01";
}

std::string of_clipping(const Config& config) {
  if (is_given(config, "gradient_clipping")) return "";
  return fmt::format(
      "gradient_clipping: it is not given, so gradients are clipped to a norm of {}, as by the newest DeepSpeed; "
      "older ones do not clip, which 0 means",
      config.gradient_clipping);
}

std::string of_scheduler(const Config& config) {
  if (is_given(config, "scheduler.type") || config.scheduler.warmup_num_steps == 0) return "";
  return fmt::format(
      "scheduler: there is no type, so the learning rate rises for {} steps and then stays; DeepSpeed has no schedule then",
      config.scheduler.warmup_num_steps);
}

std::string of_warmup_type(const Config& config) {
  const GivenKey* warmup_type = find_given(config, "scheduler.params.warmup_type");
  const std::string taken = quoted(std::string(name_of(config.scheduler.warmup_type)));
  if (!warmup_type || warmup_type->value == taken || warmup_type->value == "null" || warmup_type->value == "\"auto\"")
    return "";
  return fmt::format("scheduler.params.warmup_type: {} is no shape of a warm-up; {} is taken, as in DeepSpeed",
                     warmup_type->value, taken);
}

std::string of_muon(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.type != OptimizerType::Muon) return "";
  std::string defaults;
  const auto add = [&](bool given, const std::string& text) {
    if (!given) defaults += (defaults.empty() ? "" : ", ") + text;
  };
  const bool lr = is_given(config, "optimizer.params.lr");
  add(lr || is_given(config, "optimizer.params.muon_lr"), fmt::format("muon_lr is {} (DeepSpeed: 0.02)", optimizer.lr));
  add(lr || is_given(config, "optimizer.params.adam_lr"), fmt::format("adam_lr is {} (DeepSpeed: 0.0003)", optimizer.lr));
  add(is_given(config, "optimizer.params.betas"),
      fmt::format("betas are [{}, {}] (DeepSpeed: [0.9, 0.95])", optimizer.beta1, optimizer.beta2));
  add(is_given(config, "optimizer.params.eps"), fmt::format("eps is {} (DeepSpeed: 1e-10)", optimizer.epsilon));
  return defaults.empty() ? "" : "optimizer.params: not given, so " + defaults;
}

// Checks whether the file has this number, which stands for another value here.
bool is_written(const Config& config, const std::string& path, double number) {
  const GivenKey* given = find_given(config, path);
  if (!given || is_auto_key(config, path)) return false;
  const JsonNode value = read_json(given->value, path);
  return value.kind == JsonKind::Number && value.number == number;
}

// Numbers that mean what they say in DeepSpeed.
std::string of_written_zeros(const Config& config) {
  const SchedulerConfig& s = config.scheduler;
  const OptimizerConfig& optimizer = config.optimizer;
  const bool is_deepspeeds =
      s.type == SchedulerType::WarmupLR || s.type == SchedulerType::WarmupDecayLR || s.type == SchedulerType::WarmupCosineLR;
  std::string text;
  const auto add = [&](const std::string& path, double number, const std::string& here, const std::string& there) {
    if (is_written(config, path, number))
      text += fmt::format("{}{}: {} stands for {}; in DeepSpeed {}", text.empty() ? "" : "; ", path, number, here, there);
  };
  const std::string rate = fmt::format("optimizer.params.lr, {}", optimizer.lr);
  add("scheduler.params.warmup_max_lr", 0, rate, "it is a learning rate of 0");
  if (is_deepspeeds) {
    add("scheduler.params.total_num_steps", 0,
        s.total_num_steps > 0 ? fmt::format("the steps of the run, {}", s.total_num_steps) : "the steps of the run",
        "the schedule then ends with its warm-up");
    add("scheduler.params.warmup_num_steps", 0, "2 steps", "0.19.8 it is refused, and in older ones it is 2 steps, too");
  }
  add("scheduler.params.cycle_second_step_size", 0, fmt::format("cycle_first_step_size, {}", s.cycle_first_step_size),
      "the cycle then has no second half");
  if (s.cycle_first_stair_count > 0)
    add("scheduler.params.cycle_second_stair_count", -1, fmt::format("cycle_first_stair_count, {}", s.cycle_first_stair_count),
        "the second half then has no stairs");
  add("optimizer.params.muon_lr", 0, rate, "matrices then stay as they are");
  add("optimizer.params.adam_lr", 0, rate, "parameters that are no matrices then stay as they are");
  return text;
}

// Schedules of learning rates, not of shares of the optimizer's.
bool states_rates(const Config& config) {
  const SchedulerConfig& s = config.scheduler;
  if (s.type == SchedulerType::LRRangeTest || s.type == SchedulerType::OneCycle) return true;
  const bool warms_up = s.type == SchedulerType::WarmupLR || s.type == SchedulerType::WarmupDecayLR;
  return warms_up && (s.warmup_max_lr > 0 || s.warmup_min_lr > 0);
}

std::string of_muon_schedule(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const auto differs = [&](double rate) { return rate > 0 && rate != optimizer.lr; };
  const bool two_rates = differs(optimizer.muon_lr) || differs(optimizer.adam_lr);
  if (optimizer.type != OptimizerType::Muon || !two_rates || !states_rates(config)) return "";
  return fmt::format(
      "scheduler.type: the rates of {} are multiplied by muon_lr / lr and adam_lr / lr; in DeepSpeed they replace muon_lr and "
      "adam_lr",
      name_of(config.scheduler.type));
}

std::string of_accumulation(const Config& config) {
  const GivenKey* managed = find_given(config, "managed_gradient_accumulation");
  if (!managed || managed->value != "false") return "";
  const int64_t steps = std::max<int64_t>(config.batch.gradient_accumulation_steps, 1);
  return fmt::format(
      "managed_gradient_accumulation: {} {} a step, by gradient_accumulation_steps; in DeepSpeed the program ends "
      "a step whenever it calls step()",
      steps, steps == 1 ? "microbatch is" : "microbatches are");
}

std::string of_stage(const Config& config) {
  if (config.zero.stage == 0 || config.zero.stage == 3) return "";
  if (config.zero.zero_quantized_gradients)
    return fmt::format(
        "zero_optimization.zero_quantized_gradients: 4-bit sums at stage {}, too; DeepSpeed has them at stage 3 only",
        config.zero.stage);
  return "";
}

std::string of_token_drop(const Config& config) {
  if (!config.model.token_drop.enabled) return "";
  return "data_efficiency.data_routing.random_ltd: tokens keep their positions; in DeepSpeed a rotary embedding counts the "
         "chosen "
         "ones from 0";
}

std::string of_sample_curriculum(const Config& config) {
  if (!config.sample_curriculum.enabled) return "";
  return fmt::format(
      "data_efficiency.data_sampling.curriculum_learning: easy samples first, {}; the metrics are measured on the "
      "samples of this run, and samples are read in rounds of all that are easy enough, not drawn from clusters "
      "in files",
      describe_sample_curriculum(config));
}

// ---- how it is rounded

// DeepSpeed sums gradients over microbatches in the model's type.
std::string of_gradient_sums(const Config& config) {
  const DType here = config.gradient_dtype(), model = config.model_dtype();
  const GivenKey* given = find_given(config, "data_types.grad_accum_dtype");
  if (config.reproducible == Reproducible::Layout || here == model || (given && given->value != "null")) return "";
  return fmt::format(
      "data_types.grad_accum_dtype: {} is the type in which gradients of a model in {} are summed; DeepSpeed sums "
      "them in {}, as \"{}\" does here",
      name_of_dtype(here), name_of_dtype(model), name_of_dtype(model), name_of_dtype(model));
}

// It sends them to other ranks in communication_data_type, by default the model's type; here the type is that of the sums.
std::string of_reductions(const Config& config) {
  const DType here = config.gradient_dtype(), there = config.communication_dtype.value_or(config.model_dtype());
  if (config.reproducible == Reproducible::Layout || here == there) return "";
  if (!config.communication_dtype && !of_gradient_sums(config).empty()) return "";  // gradient sums have a line
  return fmt::format(
      "communication_data_type: {}, in which gradients are summed, is also the type in which ranks send them; "
      "DeepSpeed sends them in {}{}",
      name_of_dtype(here), name_of_dtype(there),
      config.communication_dtype ? "" : fmt::format(", unless the key is \"{}\"", name_of_dtype(here)));
}

// ---- what is reported

// Keys that the table calls different and that no line above is about.
std::string of_reports(const Config& config) {
  std::string text;
  const auto add = [&](bool applies, const char* path) {
    const KeyEntry* entry = key_table().find(path);
    if (applies) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", path, entry ? entry->difference : "");
  };
  add(config.wall_clock_breakdown, "wall_clock_breakdown");
  add(config.memory_breakdown, "memory_breakdown");
  add(config.flops_profiler.enabled, "flops_profiler.enabled");
  add(config.comms_logger.enabled, "comms_logger.enabled");
  return text.empty() ? "" : "reports: in DeepSpeed, " + text;
}

constexpr std::array<Difference, 17> kDifferences{{
    {Importance::Training, of_precision},
    {Importance::Training, of_optimizer},
    {Importance::Training, of_decay},
    {Importance::Training, of_torch_adam},
    {Importance::Training, of_clipping},
    {Importance::Training, of_scheduler},
    {Importance::Training, of_warmup_type},
    {Importance::Training, of_written_zeros},
    {Importance::Training, of_muon},
    {Importance::Training, of_muon_schedule},
    {Importance::Training, of_accumulation},
    {Importance::Training, of_token_drop},
    {Importance::Training, of_sample_curriculum},
    {Importance::Rounding, of_stage},
    {Importance::Rounding, of_gradient_sums},
    {Importance::Rounding, of_reductions},
    {Importance::Reports, of_reports},
}};

// Checks whether the file has a key of DeepSpeed; without any, DeepSpeed could not treat the file differently.
bool has_key_of_deepspeed(const Config& config) {
  return std::any_of(config.given.begin(), config.given.end(), [](const GivenKey& given) {
    const KeyEntry* entry = key_table().find(given.path);
    return !entry || entry->origin != Origin::Own;
  });
}

}  // namespace

std::vector<std::string> differences_from_deepspeed(const Config& config) {
  std::vector<std::string> lines;
  if (!has_key_of_deepspeed(config)) return lines;
  for (const Importance importance : {Importance::Training, Importance::Rounding, Importance::Reports})
    for (const Difference& difference : kDifferences)
      if (difference.importance == importance)
        if (std::string line = difference.line(config); !line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace trivet
