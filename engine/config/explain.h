// Describes a Config: all values with their origin, and the differences between two Configs.
#pragma once

#include <string>
#include <vector>

namespace trivet {

struct Config;

struct ExplainedKey {
  std::string path, value;  // the value as JSON
  std::string origin;       // "default", "--set" or "configs/gpt.json:14:9"
  std::string meaning;
  std::string without_effect;  // why the key has no effect in this run; empty if it has one
};

// Every key that applies, and every other key that was given, in the order of the table.
std::vector<ExplainedKey> explain(const Config& config);

// Writes the same values as a JSON document, which load_config reads back to an equal Config.
std::string explain_as_json(const Config& config);

struct ConfigDifference {
  std::string path, before, after;  // a key that applies to only one of the two is "-" in the other
};
std::vector<ConfigDifference> diff(const Config& before, const Config& after);

}  // namespace trivet
