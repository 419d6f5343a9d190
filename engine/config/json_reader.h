// Reads JSON into JsonNodes with positions. Comments (`//`, `#` and `/* */`, as DeepSpeed reads them) and a comma after the
// last value of an object or list are allowed; everything else follows RFC 8259: no NaN, no duplicate keys, strings in UTF-8.
// U+0000 is refused too: the system takes it as the end of a string, which would cut a file name short. Two limits, 1 MiB and
// 64 levels, guard against files that are not configs.
//
// Trivet has its own reader because nlohmann's does not report the positions of keys.
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
