// Reads JSON into JsonNodes with positions. `//` comments are allowed, and a comma after the last value of an object or list;
// anything else is as RFC 8259 says: no NaN, no duplicate keys, strings in UTF-8. U+0000 is refused too: as the end of a text
// for the system it would cut a file name short. Limits guard against files that are no configs: 1 MiB and 64 levels.
//
// Written here because nlohmann's reader tells no position of a key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/config/json_node.h"

namespace trivet::config {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 64;

// Throws ConfigError "source:line:column: what is wrong".
JsonNode read_json(std::string_view text, const std::string& source);

}  // namespace trivet::config
