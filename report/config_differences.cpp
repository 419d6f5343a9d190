#include "report/config_differences.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/bounded_json.h"

namespace trivet::report {
namespace {

using Json = nlohmann::json;
using Values = std::map<std::string, std::string>;  // key -> value as JSON

void flatten(const Json& json, const std::string& path, Values& values) {
  if (!json.is_object()) {
    values[path] = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  for (const auto& [name, value] : json.items()) flatten(value, path.empty() ? name : path + "." + name, values);
}

Values values_of(const std::string& config) {
  Values values;
  if (!json_excess(config, {}).empty()) return values;
  const Json json = Json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) flatten(json, "", values);
  return values;
}

}  // namespace

std::vector<std::vector<std::string>> config_differences(std::span<const std::string> configs) {
  std::vector<Values> all;
  Values keys;
  for (const std::string& config : configs) {
    all.push_back(values_of(config));
    keys.insert(all.back().begin(), all.back().end());
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, any] : keys) {
    if (key == "run.directory" || key == "timeline.directory") continue;  // every run has its own
    std::vector<std::string> row{key};
    for (Values& values : all) row.push_back(values[key]);
    if (std::ranges::any_of(row.begin() + 1, row.end(), [&](const std::string& value) { return value != row[1]; }))
      rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace trivet::report
