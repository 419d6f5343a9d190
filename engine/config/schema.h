// Renders the key table as a JSON Schema (draft 2020-12), from which editors take completion, types, ranges and meanings.
#pragma once

#include <string>

namespace trivet {

std::string config_schema();

}  // namespace trivet
