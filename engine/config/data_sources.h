// The sources of data.sources, from and to JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/options.h"
#include "engine/config/json_node.h"

namespace trivet::config {

inline constexpr size_t kMostSources = 256;
inline constexpr const char* kSourceForm = R"(use a list such as [{"path": "books.tokens", "weight": 0.7}])";

// Throws std::invalid_argument saying what is accepted.
std::vector<DataSource> sources_from(const JsonNode& node);
std::string to_json(const std::vector<DataSource>& sources);

}  // namespace trivet::config
