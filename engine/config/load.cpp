#include "engine/config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/bounded_file.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/deepspeed.h"
#include "engine/config/document.h"
#include "engine/config/elasticity.h"
#include "engine/config/json_reader.h"
#include "engine/config/load_for_run.h"
#include "engine/config/other_programs.h"
#include "engine/config/overrides.h"
#include "engine/config/refuse.h"
#include "engine/config/sample_curriculum.h"
#include "engine/config/suggest.h"
#include "engine/config/vocabulary_rows.h"
#include "model/family.h"

namespace trivet {
namespace {

using namespace config;

constexpr int64_t kTokensOfBytes = 256;

using Paths = std::vector<std::string>;

// Adds the path of each value that is refused to `unknown_values`.
void set_values(Config& config, const Document& document, bool selectors, Mistakes& mistakes, Paths& unknown_values) {
  for (const GivenEntry& given : document.given()) {
    if (!given.entry->set || given.entry->selects != selectors || given.value->kind == JsonKind::Null || given.takes ||
        !given.valid)
      continue;
    try {
      given.entry->set(config, *given.value);
    } catch (const std::invalid_argument& expected) {
      unknown_values.push_back(given.entry->path);
      mistakes.add(given.value->at, given.entry->path,
                   fmt::format("{} is not accepted; {}", printable(to_json(*given.value)), expected.what()));
    }
  }
}

std::string unquoted(const std::string& json) { return json.substr(1, json.size() - 2); }

// The type of a section is on the command line, where no key of the file can be removed.
bool selected_by_command(const Document& document, const std::string& selector) {
  const GivenEntry* type = document.find(selector);
  return type && type->at.line == 0;
}

std::string in_its_section(const std::string& selector) {
  const std::string section = selector.substr(0, selector.find('.'));
  return fmt::format(", or replace the section: --set '{}={{\"type\": ..., \"params\": {{...}}}}'", section);
}

// Refuses keys of a type that is not selected: "momentum" belongs to SGD and is refused with AdamW.
void check_selected(const Config& config, const Document& document, Mistakes& mistakes, const Paths& unknown_values) {
  for (const GivenEntry& given : document.given()) {
    const KeyEntry& entry = *given.entry;
    if (entry.selected_by.empty() || std::ranges::find(unknown_values, entry.selector) != unknown_values.end()) continue;
    const std::string selected = unquoted(key_table().find(entry.selector)->get(config));
    if (std::find(entry.selected_by.begin(), entry.selected_by.end(), selected) != entry.selected_by.end()) continue;
    mistakes.add(given.at, entry.path,
                 fmt::format("belongs to {}, not to \"{}\"; remove it{}", one_of(entry.selected_by), selected,
                             selected_by_command(document, entry.selector) ? in_its_section(entry.selector) : ""));
  }
}

// In the order of the table, because the value of one key may follow from another key, as a schedule's from
// optimizer.params.lr.
void take_auto_values(Config& config, const Document& document) {
  std::vector<const KeyEntry*> entries;
  for (const GivenEntry& given : document.given())
    if (given.takes) entries.push_back(given.entry);
  std::sort(entries.begin(), entries.end());
  for (const KeyEntry* entry : entries) {
    const std::string taken =
        entry->take_auto ? entry->take_auto(config) : (entry->get ? entry->get(config) : entry->default_json) + ", the default";
    config.automatic.push_back({entry->path, taken});
    for (GivenKey& given : config.given)
      if (given.path == entry->path) given.value = entry->get ? entry->get(config) : entry->default_json;
  }
  for (const std::string& section : document.auto_sections())
    config.automatic.push_back({section, "the defaults, as without the section"});
}

// Ignores the section below stage 3, as DeepSpeed does; here a line says so.
void ignore_offload_of_whole_parameters(Config& config) {
  OffloadDevice& device = config.zero.offload_param.device;
  if (config.zero.stage == 3 || device == OffloadDevice::None) return;
  device = OffloadDevice::None;
  config.not_used.push_back("zero_optimization.offload_param: takes effect only when zero_optimization.stage is 3");
}

// Gradients are reduced in the type in which they are summed, so a wider type of reductions is the type of both.
void widen_gradient_sums(Config& config) {
  const bool narrow = config.gradient_dtype() != DType::Float32;
  if (config.communication_dtype == DType::Float32 && narrow && !config.grad_accum_dtype)
    config.grad_accum_dtype = DType::Float32;
}

// Takes null as the optimizer's rate, as DeepSpeed does, even where a schedule has another default.
void take_rate_for_null(Config& config) {
  const GivenKey* maximum = find_given(config, "scheduler.params.warmup_max_lr");
  if (maximum && maximum->value == "null") config.scheduler.warmup_max_lr = 0;
}

// A number of the model that has no effect, as its line says, must have none on what builds the model, either. Builders
// of models of images read their own keys alone.
void leave_out_of_other_models(Config& config) {
  if (model::family_of(config.model.type).reads_images) return;
  Config defaults;
  defaults.model.type = config.model.type;
  set_dependent_defaults(defaults);
  for (const GivenKey& given : config.given) {
    const KeyEntry* entry = given.path.starts_with("model.") ? key_table().find(given.path) : nullptr;
    if (!entry || !entry->active || entry->active(config)) continue;
    if (entry->type == KeyType::Number || entry->type == KeyType::Integer || entry->type == KeyType::Bool)
      entry->set(config, read_json(entry->get(defaults), entry->path));
  }
}

void settle(Config& config) {
  leave_out_of_other_models(config);
  settle_metrics(config);
  take_rate_for_null(config);
  ignore_offload_of_whole_parameters(config);
  widen_gradient_sums(config);
  complete_batch(config);
  if (config.scheduler.total_num_steps == 0) config.scheduler.total_num_steps = config.training.steps;
}

Config config_of(const Document& document, const std::string& source) {
  Config config;
  config.source = source;
  for (const GivenEntry& given : document.given())
    config.given.push_back({given.entry->path, to_json(*given.value), given.at.line, given.at.column});
  for (const GivenFeature& given : document.features())
    config.given.push_back({given.feature->section, to_json(*given.value), given.at.line, given.at.column});
  config.not_used = document.not_used();
  return config;
}

// The checks that come in addition to those for contradictions between keys.
using Checks = std::vector<std::function<void(const Config&)>>;

// Goes on after a mistake, so that all of them are reported together.
Config build(const JsonNode& root, const std::string& source, const Checks& more, AskForModel model) {
  if (const std::string why = why_not_a_config(root); !why.empty()) throw ConfigError(source + ": " + why);
  Mistakes mistakes(source);
  const Document document(root, key_table(), mistakes);
  Paths unknown_values = document.unknown_values();
  Config config = config_of(document, source);
  set_values(config, document, true, mistakes, unknown_values);
  set_dependent_defaults(config);
  set_values(config, document, false, mistakes, unknown_values);
  check_selected(config, document, mistakes, unknown_values);
  take_auto_values(config, document);
  const size_t before = mistakes.size();
  add_contradiction_of(settle, config, unknown_values, mistakes);
  const bool is_settled = mistakes.size() == before;
  if (is_settled) add_contradictions(config, unknown_values, mistakes);
  for (const auto& check_more : more)
    if (is_settled) add_contradiction_of(check_more, config, unknown_values, mistakes);
  const JsonNode* section = root.find("model");
  const bool may_be_mistaken = section && !section->members.empty() && mistakes.size() > 0;  // all of its keys
  if (is_settled && model == AskForModel::Yes && !may_be_mistaken)
    add_contradiction_of(check_model_is_given, config, unknown_values, mistakes);
  mistakes.throw_if_any();
  return config;
}

JsonNode read_root(std::string_view text, const std::string& source_name) {
  try {
    return read_json(text, source_name);
  } catch (const ConfigError&) {
    if (const std::string why = why_not_json(text); !why.empty()) throw ConfigError(source_name + ": " + why);
    throw;
  }
}

Config parse(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides,
             const std::vector<std::string>& defaults, const Checks& more, AskForModel model) {
  JsonNode root = read_root(text, source_name);
  apply_overrides(root, overrides);
  apply_defaults(root, defaults);
  return build(root, source_name, more, model);
}

// A written 0 or "" is not the same as a key that is left for later.
void check_written_values(const Config& config) {
  const auto refuse_written = [&](const char* path, const char* value, const char* advice) {
    const GivenKey* given = find_given(config, path);
    if (given && given->value == value) refuse(config, path, fmt::format("{} is not accepted; {}", value, advice));
  };
  if (config.training.steps == 0 && config.training.epochs == 0)
    for (const char* path : {"training.steps", "training.epochs"})
      refuse_written(path, "0", "say how long to train, or leave the key out for --set training.steps=N");
  if (!config.data.is_given()) refuse_written("data.train", "\"\"", "name the data to train on (docs/data.md)");
}

// Checks the rows of a vocabulary of bytes; the sizes of other vocabularies are known only from their files.
void check_rows_of_bytes(const Config& config) {
  if (model::family_of(config.model.type).reads_images) return;
  if (config.vocabulary.kind == VocabularyKind::Bytes) vocabulary_rows(config, kTokensOfBytes);
}

// DeepSpeed counts the steps before the one that it profiles. With training.epochs, the number of steps follows from the data.
void check_profiled_step(const Config& config) {
  const int64_t step = config.flops_profiler.profile_step, steps = config.training.steps;
  if (config.flops_profiler.enabled && steps > 0 && step >= steps)
    refuse(config, "flops_profiler.profile_step",
           fmt::format("{} steps come before the one that is profiled, but this run has only {}; use at most {}", step, steps,
                       steps - 1));
}

// Checks batch_norm: its running averages are summed with gradients, so they must fit what becomes of those.
void check_running_averages(const Config& config) {
  const std::vector<std::string>& network = config.model.network;
  const auto is_batch_norm = [](const std::string& layer) { return layer.starts_with("batch_norm"); };
  if (std::none_of(network.begin(), network.end(), is_batch_norm)) return;
  const auto refuse_with = [&](const std::string& key, const std::string& value, const char* why) {
    refuse(config, key, fmt::format("{} is not accepted with batch_norm in model.network: {}, or group_norm", value, why));
  };
  const std::string type = quoted(std::string(name_of(config.optimizer.type)));
  if (config.optimizer.type == OptimizerType::Lamb)
    refuse_with("optimizer.type", type, "LAMB does not move its running averages; use another optimizer");
  if (config.gradient_dtype() == DType::Float16)
    refuse_with(
        "fp16.enabled", "true",
        "what a step adds to its running averages may not fit into float16; use bf16, data_types.grad_accum_dtype \"fp32\"");
  if (config.zero.zero_quantized_gradients || config.zero.zero_quantized_weights)
    refuse_with(config.zero.zero_quantized_gradients ? "zero_optimization.zero_quantized_gradients"
                                                     : "zero_optimization.zero_quantized_weights",
                "true", "its running averages would be rounded with numbers of another size; use false");
}

// Checks whether a folder holds the config.json of a model. That of a run holds a config of the same name.
bool is_folder_of_model(const std::string& path) {
  std::error_code absent;
  if (!std::filesystem::is_directory(path, absent)) return false;
  const BoundedText inside = read_bounded(path + "/config.json", kMaxConfigBytes, "a config");
  try {
    return inside.problem.empty() && describes_model_of_hugging_face(read_json(inside.text, path));
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::string read_config_text(const std::string& path) {
  const BoundedText read = read_bounded(path, kMaxConfigBytes, "a config");
  if (is_folder_of_model(path))
    throw ConfigError(
        path + ": is the folder of a model, not a config; give a config, and name this folder with --init-from or model.from");
  if (!read.problem.empty()) throw ConfigError(path + ": " + read.problem);
  return read.text;
}

std::string model_from_in(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides) {
  JsonNode root = read_root(text, source_name);
  apply_overrides(root, overrides);
  const JsonNode* const model = root.kind == JsonKind::Object ? root.find("model") : nullptr;
  const JsonNode* const from = model && model->kind == JsonKind::Object ? model->find("from") : nullptr;
  return from && from->kind == JsonKind::String ? from->text : "";
}

Config parse_config(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides,
                    const std::vector<std::string>& defaults) {
  return parse(text, source_name, overrides, defaults, {}, AskForModel::No);
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& defaults) {
  return parse_config(read_config_text(path), path, overrides, defaults);
}

Config parse_config_for_run(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides,
                            const std::vector<std::string>& defaults, AskForModel model) {
  Checks checks{check_batch, check_written_values, check_profiled_step, check_running_averages};
  if (defaults.empty()) checks.emplace_back(check_rows_of_bytes);  // else the rows are those of other weights, which say more
  return parse(text, source_name, overrides, defaults, checks, model);
}

bool is_given(const Config& config, const std::string& path) {
  return std::any_of(config.given.begin(), config.given.end(),
                     [&](const GivenKey& given) { return given.path == path || given.path.starts_with(path + "."); });
}

}  // namespace trivet
