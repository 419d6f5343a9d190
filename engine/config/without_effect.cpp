// Lists the given keys that have no effect in this run, with the reason.
#include <algorithm>

#include "engine/config/json_reader.h"
#include "engine/config/key_table.h"
#include "engine/config/load.h"

namespace trivet {
namespace {

using namespace config;

std::string reason_without_effect(const KeyEntry& entry, const GivenKey& given, const Config& config) {
  if (entry.effect == Effect::Inert) return entry.reason;
  const bool is_default = same_value(read_json(given.value, given.path), read_json(entry.default_json, entry.path));
  if (entry.effect == Effect::NotImplemented) return is_default || given.value == "null" ? "" : "its section is not enabled";
  return entry.active && !entry.active(config) ? "takes effect only when " + entry.active_when : "";
}

}  // namespace

std::vector<std::string> accepted_without_effect(const Config& config) {
  std::vector<std::string> list;
  for (const GivenKey& given : config.given) {
    const std::string reason = reason_without_effect(*key_table().find(given.path), given, config);
    if (!reason.empty()) list.push_back(given.path + ": " + reason);
  }
  return list;
}

}  // namespace trivet
