// Rewrites text before it is split (the "normalizer" of a tokenizer.json).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "data/tokenizers/component.h"

namespace trivet::data {

// Null for null. Throws DataError naming `source` and the component that is not supported.
std::unique_ptr<Normalizer> read_normalizer(const nlohmann::json& json, const std::string& source);

}  // namespace trivet::data
