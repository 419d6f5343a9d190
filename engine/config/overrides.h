// Writes --set key=value into the document, as if the file had said so.
#pragma once

#include <string>
#include <vector>

#include "engine/config/json_node.h"

namespace trivet::config {

void apply_overrides(JsonNode& root, const std::vector<std::string>& overrides);  // throws ConfigError

}  // namespace trivet::config
