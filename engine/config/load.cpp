#include "engine/config/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bounded_file.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/document.h"
#include "engine/config/elasticity.h"
#include "engine/config/json_reader.h"
#include "engine/config/overrides.h"
#include "engine/config/sample_curriculum.h"
#include "engine/config/suggest.h"

namespace trivet {
namespace {

using namespace config;

std::string read_text(const std::string& path) {
  const BoundedText read = read_bounded(path, kMaxConfigBytes, "a config");
  if (!read.problem.empty()) throw ConfigError(path + ": " + read.problem);
  return read.text;
}

void set_values(Config& config, const Document& document, bool selectors, Mistakes& mistakes) {
  for (const GivenEntry& given : document.given()) {
    if (!given.entry->set || given.entry->selects != selectors || given.value->kind == JsonKind::Null || given.takes) continue;
    try {
      given.entry->set(config, *given.value);
    } catch (const std::invalid_argument& expected) {
      mistakes.add(given.value->at, given.entry->path,
                   fmt::format("{} is not accepted; {}", printable(to_json(*given.value)), expected.what()));
    }
  }
}

std::string unquoted(const std::string& json) { return json.substr(1, json.size() - 2); }

// Refuses keys of a type that is not selected: "momentum" belongs to SGD and is refused with AdamW.
void check_selected(const Config& config, const Document& document, Mistakes& mistakes) {
  for (const GivenEntry& given : document.given()) {
    const KeyEntry& entry = *given.entry;
    if (entry.selected_by.empty()) continue;
    const std::string selected = unquoted(key_table().find(entry.selector)->get(config));
    if (std::find(entry.selected_by.begin(), entry.selected_by.end(), selected) != entry.selected_by.end()) continue;
    mistakes.add(given.at, entry.path,
                 fmt::format("belongs to {}, not to \"{}\"; remove it", one_of(entry.selected_by), selected));
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

// As in DeepSpeed, which ignores the section below stage 3; here a line says so.
void ignore_offload_of_whole_parameters(Config& config) {
  OffloadDevice& device = config.zero.offload_param.device;
  if (config.zero.stage == 3 || device == OffloadDevice::None) return;
  device = OffloadDevice::None;
  config.not_used.push_back("zero_optimization.offload_param: takes effect only when zero_optimization.stage is 3");
}

Config build(const JsonNode& root, const std::string& source) {
  Mistakes mistakes(source);
  const Document document(root, key_table(), mistakes);
  mistakes.throw_if_any();
  Config config;
  config.source = source;
  for (const GivenEntry& given : document.given())
    config.given.push_back({given.entry->path, to_json(*given.value), given.at.line, given.at.column});
  for (const GivenFeature& given : document.features())
    config.given.push_back({given.feature->section, to_json(*given.value), given.at.line, given.at.column});
  config.not_used = document.not_used();
  set_values(config, document, true, mistakes);
  set_dependent_defaults(config);
  set_values(config, document, false, mistakes);
  check_selected(config, document, mistakes);
  mistakes.throw_if_any();
  take_auto_values(config, document);
  settle_metrics(config);
  ignore_offload_of_whole_parameters(config);
  complete_batch(config);
  if (config.scheduler.total_num_steps == 0) config.scheduler.total_num_steps = config.training.steps;
  return config;
}

}  // namespace

Config parse_config(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides,
                    const std::vector<std::string>& defaults) {
  JsonNode root = read_json(text, source_name);
  apply_overrides(root, overrides);
  apply_defaults(root, defaults);
  Config config = build(root, source_name);
  check(config);
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& defaults) {
  return parse_config(read_text(path), path, overrides, defaults);
}

bool is_given(const Config& config, const std::string& path) {
  return std::any_of(config.given.begin(), config.given.end(),
                     [&](const GivenKey& given) { return given.path == path || given.path.starts_with(path + "."); });
}

}  // namespace trivet
