#include "engine/config/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/config/key_table.h"
#include "engine/config/load.h"
#include "engine/config/mistakes.h"
#include "engine/config/refuse.h"

namespace trivet {
namespace {

using namespace config;

// Checks whether the key applies: a parameter of an optimizer or scheduler that is not selected does not.
bool applies(const KeyEntry& entry, const Config& config) {
  if (entry.selected_by.empty()) return true;
  const std::string selected = key_table().find(entry.selector)->get(config);
  return std::any_of(entry.selected_by.begin(), entry.selected_by.end(),
                     [&](const std::string& name) { return quoted(name) == selected; });
}

ExplainedKey explain_key(const KeyEntry& entry, const GivenKey* given, const Config& config) {
  ExplainedKey key;
  key.path = entry.path;
  key.value = entry.get ? entry.get(config) : given->value;
  const bool is_of_weights = given && given->line == kOfWeights.line;
  key.origin = is_of_weights ? "the weights"
               : given       ? location(config.source, {.line = given->line, .column = given->column})
                             : "default";
  key.meaning = entry.meaning;
  if (entry.effect != Effect::Works)
    key.without_effect = entry.effect == Effect::Inert     ? entry.reason
                         : entry.effect == Effect::NotUsed ? "not used here"
                                                           : "not implemented";
  else if (entry.active && !entry.active(config))
    key.without_effect = "takes effect only when " + entry.active_when;
  return key;
}

nlohmann::ordered_json& member_at(nlohmann::ordered_json& root, const std::string& path) {
  nlohmann::ordered_json* node = &root;
  size_t start = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', start)) {
    node = &(*node)[path.substr(start, dot - start)];
    start = dot + 1;
  }
  return (*node)[path.substr(start)];
}

}  // namespace

std::vector<ExplainedKey> explain(const Config& config) {
  std::vector<ExplainedKey> keys;
  for (const KeyEntry& entry : key_table().entries()) {
    const GivenKey* given = find_given(config, entry.path);
    const bool stored = entry.get && entry.alias_of.empty() && applies(entry, config);
    if (stored || (given && !entry.get)) keys.push_back(explain_key(entry, given, config));
  }
  return keys;
}

std::string explain_as_json(const Config& config) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  for (const ExplainedKey& key : explain(config)) member_at(root, key.path) = nlohmann::ordered_json::parse(key.value);
  return root.dump(2);
}

std::vector<ConfigDifference> diff(const Config& before, const Config& after) {
  std::vector<ConfigDifference> differences;
  for (const KeyEntry& entry : key_table().entries()) {
    if (!entry.get || !entry.alias_of.empty()) continue;
    const std::string a = applies(entry, before) ? entry.get(before) : "-";
    const std::string b = applies(entry, after) ? entry.get(after) : "-";
    if (a != b) differences.push_back({entry.path, a, b});
  }
  return differences;
}

}  // namespace trivet
