// Reads a text where a number or a switch is expected, as DeepSpeed does.
//
// DeepSpeed checks some sections with pydantic in its lax mode, which takes "5" for 5 and "yes" for true. Sections that
// DeepSpeed reads otherwise, and keys that only Trivet has, need the value itself.
#pragma once

#include <optional>

#include "engine/config/json_node.h"
#include "engine/config/key_table.h"

namespace trivet::config {

// The number or switch that `value` stands for; empty if it stands for none, or if it may not be written so.
std::optional<JsonNode> read_as_deepspeed(const KeyEntry& entry, const JsonNode& value);

}  // namespace trivet::config
