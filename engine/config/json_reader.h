// Reads JSON into JsonNodes with positions. `//` comments are allowed, and a comma behind the last value of an object or list;
// anything else is as RFC 8259 says: no NaN, no duplicate keys. Limits guard against files that are no configs: 16 MiB and 64
// levels.
//
// Written here because nlohmann's reader tells no position of a key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/config/json_node.h"

namespace trivet::config {

inline constexpr size_t kMaxConfigBytes = size_t{16} << 20;
inline constexpr int kMaxConfigDepth = 64;

// Throws ConfigError "source:line:column: what is wrong".
JsonNode read_json(std::string_view text, const std::string& source);

}  // namespace trivet::config
