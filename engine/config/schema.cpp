#include "engine/config/schema.h"

#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/config/key_table.h"

namespace trivet {
namespace {

using namespace config;
using Json = nlohmann::ordered_json;

// ^([Aa][Dd][Aa][Mm]|...)$: JSON Schema has no way to ignore case.
std::string any_case_pattern(const std::vector<std::string>& names) {
  std::string pattern = "^(";
  for (const std::string& name : names) {
    if (pattern.size() > 2) pattern += '|';
    for (const char c : name) {
      pattern += '[';
      pattern += static_cast<char>(std::toupper(c));
      pattern += static_cast<char>(std::tolower(c));
      pattern += ']';
    }
  }
  return pattern + ")$";
}

void set_type(Json& schema, const KeyEntry& entry, const char* type) {
  if (entry.nullable)
    schema["type"] = {type, "null"};
  else
    schema["type"] = type;
}

void set_enum(Json& schema, const KeyEntry& entry) {
  if (entry.ignore_case) {
    schema["type"] = "string";
    schema["pattern"] = any_case_pattern(entry.names);
    return;
  }
  if (!entry.open_names.empty()) {
    schema["anyOf"] = {{{"enum", entry.names}}};
    for (const std::string& open : entry.open_names)
      schema["anyOf"].push_back({{"type", "string"}, {"pattern", "^" + open.substr(0, open.find(':') + 1) + "."}});
    return;
  }
  schema["enum"] = entry.names;
  if (entry.nullable) schema["enum"].push_back(nullptr);
}

void set_bounds(Json& schema, const Bounds& bounds) {
  if (std::isfinite(bounds.min)) schema[bounds.min_excluded ? "exclusiveMinimum" : "minimum"] = bounds.min;
  if (std::isfinite(bounds.max)) schema[bounds.max_excluded ? "exclusiveMaximum" : "maximum"] = bounds.max;
}

std::string description(const KeyEntry& entry) {
  const Feature* around = key_table().feature_around(entry.path);
  if (entry.effect == Effect::Inert) return entry.meaning + " (accepted without effect: " + entry.reason + ")";
  if (entry.effect == Effect::NotUsed || (around && !around->changes_weights))
    return entry.meaning + " (accepted, but not used)";
  if (entry.effect == Effect::NotImplemented) return entry.meaning + " (not implemented: only the default is accepted)";
  return entry.meaning;
}

Json schema_of(const KeyEntry& entry) {
  Json schema;
  schema["description"] = description(entry);
  switch (entry.type) {
    case KeyType::Bool: set_type(schema, entry, "boolean"); break;
    case KeyType::Integer: set_type(schema, entry, "integer"); break;
    case KeyType::Number: set_type(schema, entry, "number"); break;
    case KeyType::String: set_type(schema, entry, "string"); break;
    case KeyType::List: set_type(schema, entry, "array"); break;
    case KeyType::Object: set_type(schema, entry, "object"); break;
    case KeyType::Enum: set_enum(schema, entry); break;
    case KeyType::Any: break;
  }
  set_bounds(schema, entry.bounds);
  schema["default"] = Json::parse(entry.default_json);
  return schema;
}

Json empty_section(const char* other_type) {
  return {{"type", {"object", other_type}}, {"additionalProperties", false}, {"properties", Json::object()}};
}

// The properties of the section, which is created if it does not exist yet.
Json& properties_of(Json& root, const std::string& section) {
  if (section.empty()) return root["properties"];
  const size_t dot = section.rfind('.');
  Json& parent = properties_of(root, dot == std::string::npos ? "" : section.substr(0, dot));
  Json& schema = parent[section.substr(dot + 1)];
  if (schema.is_null()) schema = empty_section(section == "zero_optimization" ? "boolean" : "null");
  return schema["properties"];
}

Json& property_at(Json& root, const std::string& path) {
  const size_t dot = path.rfind('.');
  return properties_of(root, dot == std::string::npos ? "" : path.substr(0, dot))[path.substr(dot + 1)];
}

}  // namespace

std::string config_schema() {
  Json root;
  root["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  root["title"] = "Trivet configuration";
  root["type"] = "object";
  root["additionalProperties"] = false;
  root["properties"] = Json::object();
  for (const KeyEntry& entry : key_table().entries())
    properties_of(root, entry.section())[std::string(entry.name())] = schema_of(entry);
  for (const auto& [other_name, path] : key_table().other_names()) {
    const Json same = property_at(root, path);
    property_at(root, other_name) = same;
  }
  return root.dump(2);
}

}  // namespace trivet
