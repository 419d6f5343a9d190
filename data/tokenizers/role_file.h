// The small files of JSON beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json,
// generation_config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trivet::data {

// Returns an empty object if there is no such file. Throws DataError if it is no JSON object, or one of too many levels.
nlohmann::json read_role_file(const std::string& path);

// Returns the text of a token that is written as a text, or as an object with its settings; "" if it is neither.
std::string token_content(const nlohmann::json& token);

}  // namespace trivet::data
