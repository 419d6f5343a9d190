// Reads JSON that somebody else may have written: it refuses duplicate keys, bounds depth and size, and gives typed access
// whose errors name the place.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/shape.h"

namespace trivet::checkpoint {

using Json = nlohmann::json;

// CheckpointError (CheckpointCorrupt): "<where>: <what>". Text from the file is escaped and truncated.
[[noreturn]] void corrupt(std::string_view where, std::string_view what);

// The most values (core/bounded_json.h), unless the caller says otherwise.
inline constexpr int64_t kMostStrictValues = 2'000'000;

Json parse_strict(std::string_view text, std::string_view where, int64_t most_values = kMostStrictValues);

// A value of the file as messages show it: escaped and truncated.
std::string shown(const Json& value);

// Members and conversions; `where` is the file or the object within it.
const Json& member(const Json& object, const char* key, std::string_view where);
int64_t to_count(const Json& value, std::string_view where);  // an integer in [0, 2^62]
const std::string& to_text(const Json& value, std::string_view where);
Shape to_shape(const Json& value, std::string_view where);  // the product is checked for overflow
Json from_shape(const Shape& shape);

}  // namespace trivet::checkpoint
