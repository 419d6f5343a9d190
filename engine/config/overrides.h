// Writes --set key=value into the document, as if the file had said so. --set training.steps also removes the file's
// training.epochs, and the other way round.
#pragma once

#include <string>
#include <vector>

#include "engine/config/json_node.h"

namespace trivet::config {

void apply_overrides(JsonNode& root, const std::vector<std::string>& overrides);  // throws ConfigError
// Does the same for keys that the document does not have. Leaves a section that is something else than an object.
void apply_defaults(JsonNode& root, const std::vector<std::string>& defaults);

}  // namespace trivet::config
