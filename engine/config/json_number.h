// JSON's numbers: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
#pragma once

#include <string>

#include "engine/config/json_node.h"

namespace trivet::config {

// Parses `word` into `node`. Returns what is wrong with the word; empty if nothing is.
std::string read_number(const std::string& word, JsonNode& node);

}  // namespace trivet::config
