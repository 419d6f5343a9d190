#include <nlohmann/json.hpp>

#include "autotune/tune/tuning_space.h"
#include "engine/config/json_reader.h"
#include "engine/config/load.h"
#include "engine/config/overrides.h"

namespace trivet::autotune {
namespace {

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

Config ConfigDocument::config(const std::vector<std::string>& more) const {
  return parse_config(text, source, joined(overrides, more));
}

std::string ConfigDocument::json(const std::vector<std::string>& more) const {
  config::JsonNode root = config::read_json(text, source);
  config::apply_overrides(root, joined(overrides, more));
  auto json = nlohmann::ordered_json::parse(config::to_json(root));
  json.erase("autotuning");
  return json.dump(2) + "\n";
}

}  // namespace trivet::autotune
