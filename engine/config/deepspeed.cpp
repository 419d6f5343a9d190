#include "engine/config/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/log.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "model/family.h"

namespace trivet {
namespace {

bool warms_up(const SchedulerConfig& scheduler) {
  return scheduler.warmup_num_steps > 0 && scheduler.type != SchedulerType::LRRangeTest &&
         scheduler.type != SchedulerType::OneCycle;
}

bool has_end(SchedulerType type) {
  return type == SchedulerType::WarmupDecayLR || type == SchedulerType::WarmupCosineLR || type == SchedulerType::Linear ||
         type == SchedulerType::Cosine;
}

void add_warm_up(const Config& config, std::vector<std::string>& lines) {
  const SchedulerConfig& scheduler = config.scheduler;
  const int64_t warm_up = scheduler.warmup_num_steps, total = scheduler.total_num_steps, run = config.training.steps;
  if (!warms_up(scheduler)) return;
  if (has_end(scheduler.type) && total > 0 && total < warm_up)
    lines.push_back(
        fmt::format("scheduler.params.total_num_steps: {} is less than warmup_num_steps, {}, so the learning rate "
                    "rises until step {} and then drops to the end of its schedule",
                    total, warm_up, warm_up));
  else if (run > 0 && warm_up > run)
    lines.push_back(
        fmt::format("scheduler.params.warmup_num_steps: {} is more than the {} steps of the run, so the learning rate "
                    "never reaches its maximum",
                    warm_up, run));
}

void add_end(const Config& config, std::vector<std::string>& lines) {
  const int64_t schedule = config.scheduler.total_num_steps, run = config.training.steps;
  if (!is_given(config, "scheduler.params.total_num_steps") || run == 0 || schedule <= run) return;
  lines.push_back(
      fmt::format("scheduler.params.total_num_steps: the schedule of {} steps is longer than the run of {} steps, so the "
                  "learning rate does not reach its end",
                  schedule, run));
}

// 0: decides what is trained; 1: decides how; 2: neither.
int rank_of(const std::string& path) {
  constexpr std::array<std::string_view, 2> first{"fp16.enabled", "bf16.enabled"};
  constexpr std::array<std::string_view, 6> next{"optimizer", "scheduler", "train_", "gradient_", "fp16.", "bf16."};
  if (std::find(first.begin(), first.end(), path) != first.end()) return 0;
  return std::any_of(next.begin(), next.end(), [&](std::string_view start) { return path.starts_with(start); }) ? 1 : 2;
}

std::vector<AutoKey> most_important_first(std::vector<AutoKey> keys) {
  std::ranges::stable_sort(keys, {}, [](const AutoKey& key) { return rank_of(key.path); });
  return keys;
}

}  // namespace

std::vector<std::string> auto_lines(const Config& config) {
  std::vector<std::string> lines;
  for (const AutoKey& key : most_important_first(config.automatic))
    lines.push_back(key.sentence.empty() ? fmt::format("{}: \"auto\" is {}", key.path, key.taken) : key.sentence);
  return lines;
}

void tell_keys_not_given(const Config& config) {
  for (const AutoKey& key : config.automatic)
    if (!key.sentence.empty()) Log().info(key.sentence);
}

std::vector<std::string> auto_lines_in_short(const Config& config) {
  constexpr size_t kFew = 3;
  if (config.automatic.size() <= kFew) return auto_lines(config);
  std::string values;
  std::vector<std::string> sentences;
  for (const AutoKey& key : most_important_first(config.automatic)) {
    if (!key.sentence.empty()) sentences.push_back(key.sentence);
    if (!key.sentence.empty()) continue;
    const GivenKey* given = config::find_given(config, key.path);
    const bool has_value = given && given->value != "null" && given->value != "0";  // 0: of the run, or computed from others
    values += fmt::format("{}{}{}", values.empty() ? "" : ", ", key.path, has_value ? " " + given->value : "");
  }
  const size_t count = config.automatic.size() - sentences.size();
  if (count > 0) sentences.push_back(fmt::format("{} values of \"auto\" (`trivet config check` says why): {}", count, values));
  return sentences;
}

std::vector<std::string> warnings_of(const Config& config) {
  std::vector<std::string> lines;
  add_warm_up(config, lines);
  add_end(config, lines);
  return lines;
}

std::string note_on_adapters(const Config& config) {
  if (!config.model.lora.enabled() || !config.model_from.empty() || model::family_of(config.model.type).reads_images) return "";
  return "model.lora: the adapters are trained on random weights, which do not change; name the weights of a model with "
         "model.from or --init-from";
}

bool describes_model(const Config& config) {
  constexpr std::array describing{"model.type", "model.layers", "model.hidden_size", "model.heads", "model.network"};
  return std::ranges::any_of(describing, [&](const char* key) { return is_given(config, key); });
}

void check_model_is_given(const Config& config) {
  if (describes_model(config)) return;
  config::refuse(config, "model",
                 fmt::format("{}: in DeepSpeed the program brings the model, here the config names it, {{\"from\": "
                             "\"DIR\"}} with the folder of a model in Hugging Face's format (or --init-from DIR), or "
                             "describes it, such as {{\"type\": \"gpt\", \"layers\": 12, \"hidden_size\": 768, "
                             "\"heads\": 12}}; \"data\" and \"training\" are described, too (docs/config.md)",
                             is_given(config, "model") ? "this section does not say which model" : "there is no such section"));
}

}  // namespace trivet
