// JSON's numbers: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
#pragma once

#include <string>

#include "engine/config/json_node.h"

namespace trivet::config {

// Makes `node` the number that `word` writes. Returns what is wrong with the word, or nothing.
std::string read_number(const std::string& word, JsonNode& node);

}  // namespace trivet::config
