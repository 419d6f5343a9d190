// The key table as JSON Schema (draft 2020-12), for editors: completion, types, ranges, meanings.
#pragma once

#include <string>

namespace trivet {

std::string config_schema();

}  // namespace trivet
