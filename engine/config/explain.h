// A Config said in words: all values with where they came from, and what differs between two.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace trivet {

struct ExplainedKey {
  std::string path, value;  // the value as JSON
  std::string origin;       // "default", "--set" or "configs/gpt.json:14:9"
  std::string meaning;
  std::string without_effect;  // the reason, if it has none in this run
};

// Every key that applies, in the order of the table, and what else was given.
std::vector<ExplainedKey> explain(const Config& config);

// The same as a JSON document that load_config reads back to an equal Config.
std::string explain_as_json(const Config& config);

struct ConfigDifference {
  std::string path, before, after;  // a key that applies to only one of the two is "-" in the other
};
std::vector<ConfigDifference> diff(const Config& before, const Config& after);

}  // namespace trivet
