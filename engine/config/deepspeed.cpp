#include "engine/config/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/config/key_table.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "engine/config/sample_curriculum.h"

namespace trivet {
namespace {

using namespace config;

bool is_only_deepspeeds(const GivenKey& given) {
  const KeyEntry* entry = key_table().find(given.path);
  return !entry || entry->effect != Effect::Works;  // not an entry: the section of a feature
}

void add_optimizer(const Config& config, std::vector<std::string>& lines) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (!is_given(config, "optimizer"))
    lines.push_back(
        fmt::format("optimizer: there is no section, so {} with lr {} and weight_decay {} trains; in DeepSpeed the program "
                    "brings the optimizer",
                    name_of(optimizer.type), optimizer.lr, optimizer.weight_decay));
  if (optimizer.weight_decay > 0 && !optimizer.decay_all)
    lines.push_back(
        "optimizer.params.weight_decay: biases and norms do not decay; in DeepSpeed they do, unless the program groups its "
        "parameters; optimizer.decay_all true lets them decay here");
  const GivenKey* torch_adam = find_given(config, "optimizer.params.torch_adam");
  if (torch_adam && torch_adam->value == "true" && optimizer.adam_w_mode && !is_given(config, "optimizer.params.weight_decay"))
    lines.push_back(
        "optimizer.params.torch_adam: without weight_decay nothing decays; PyTorch's AdamW, which DeepSpeed takes, has a "
        "weight_decay of 0.01");
}

// Said of every config, as a name that stands for another one must not go unnoticed.
void add_warmup_type(const Config& config, std::vector<std::string>& lines) {
  const GivenKey* warmup_type = find_given(config, "scheduler.params.warmup_type");
  const std::string taken = quoted(std::string(name_of(config.scheduler.warmup_type)));
  if (warmup_type && warmup_type->value != taken && warmup_type->value != "null" && warmup_type->value != "\"auto\"")
    lines.push_back(fmt::format("scheduler.params.warmup_type: {} is no shape of a warm-up; {} is taken, as in DeepSpeed",
                                warmup_type->value, taken));
}

void add_schedule(const Config& config, std::vector<std::string>& lines) {
  const int64_t schedule = config.scheduler.total_num_steps, run = config.training.steps;
  if (!is_given(config, "scheduler.params.total_num_steps") || run == 0 || schedule <= run) return;
  lines.push_back(
      fmt::format("scheduler.params.total_num_steps: the schedule of {} steps is longer than the run, whose training.steps is "
                  "{}, so the learning rate does not reach its end",
                  schedule, run));
}

void add_sample_curriculum(const Config& config, std::vector<std::string>& lines) {
  if (config.sample_curriculum.enabled)
    lines.push_back(fmt::format(
        "data_efficiency.data_sampling.curriculum_learning: easy samples first, {}; the metrics are measured on the "
        "samples of this run, and samples are read in rounds of all that are easy enough, not drawn from clusters "
        "in files",
        config::describe_sample_curriculum(config)));
}

}  // namespace

bool is_written_for_deepspeed(const Config& config) {
  return !config.automatic.empty() || std::any_of(config.given.begin(), config.given.end(), is_only_deepspeeds);
}

std::vector<std::string> auto_lines(const Config& config) {
  std::vector<std::string> lines;
  for (const AutoKey& key : config.automatic) lines.push_back(fmt::format("{}: \"auto\" is {}", key.path, key.taken));
  return lines;
}

std::vector<std::string> differences_from_deepspeed(const Config& config) {
  std::vector<std::string> lines;
  add_warmup_type(config, lines);
  add_sample_curriculum(config, lines);
  if (!is_written_for_deepspeed(config)) return lines;
  add_optimizer(config, lines);
  if (!is_given(config, "gradient_clipping"))
    lines.push_back(
        fmt::format("gradient_clipping: it is not given, so gradients are clipped to a norm of {}, as by the newest DeepSpeed; "
                    "older ones do not clip, which 0 means",
                    config.gradient_clipping));
  add_schedule(config, lines);
  return lines;
}

void check_model_is_given(const Config& config) {
  if (is_given(config, "model") || !is_written_for_deepspeed(config)) return;
  config::refuse(config, "model",
                 "there is no such section: in DeepSpeed the program brings the model, here the config describes it, such as "
                 "{\"type\": \"gpt\", \"layers\": 12, \"hidden_size\": 768, \"heads\": 12}, and so it does for \"data\" and "
                 "\"training\" (docs/config.md)");
}

}  // namespace trivet
