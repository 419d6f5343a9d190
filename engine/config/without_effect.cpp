// Lists the given keys that have no effect in this run, with the reason.
#include <fmt/format.h>

#include <algorithm>

#include "engine/config/document.h"
#include "engine/config/json_reader.h"
#include "engine/config/key_table.h"
#include "engine/config/load.h"
#include "engine/config/mistakes.h"

namespace trivet {
namespace {

using namespace config;

std::string not_used(const std::string& instead) { return instead.empty() ? "not used here" : "not used here; use " + instead; }

// Settings of what is switched off need a line, too; the switch alone does not.
std::string reason_of_feature(const Feature& feature, const JsonNode& value) {
  if (is_switched_on(feature, value)) return fmt::format("{} is {}", feature.name, not_used(feature.instead));
  const bool alone = value.members.size() == (value.find(feature.switch_key) ? 1u : 0u);
  return alone ? "" : "is not switched on";
}

std::string reason_without_effect(const KeyEntry& entry, const GivenKey& given, const Config& config) {
  if (entry.effect == Effect::Inert) return entry.reason;
  if (entry.effect == Effect::NotImplemented) return "";
  if (entry.effect == Effect::Works)
    return entry.active && !entry.active(config) ? "takes effect only when " + entry.active_when : "";
  const bool is_default = same_value(read_json(given.value, given.path), read_json(entry.default_json, entry.path));
  return is_default || given.value == "null" ? "" : not_used(entry.instead);
}

}  // namespace

std::vector<std::string> accepted_without_effect(const Config& config) {
  std::vector<std::string> list;
  for (const GivenKey& given : config.given) {
    if (given.line == kOfWeights.line) continue;  // nobody wrote it
    const Feature* feature = key_table().find_feature(given.path);
    const std::string reason = feature ? reason_of_feature(*feature, read_json(given.value, given.path))
                                       : reason_without_effect(*key_table().find(given.path), given, config);
    if (!reason.empty()) list.push_back(given.path + ": " + reason);
  }
  list.insert(list.end(), config.not_used.begin(), config.not_used.end());
  return list;
}

}  // namespace trivet
