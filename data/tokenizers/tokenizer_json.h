// Reads tokenizer.json, the file of Hugging Face's library tokenizers.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/tokenizer.h"

namespace trivet::data {

inline constexpr size_t kLongestWrittenToken = size_t{1} << 16;  // in bytes, as the file writes it

// `text` is the file, `json` what it says. Throws DataError naming `source` and what is not supported.
std::shared_ptr<Tokenizer> read_tokenizer_json(const nlohmann::json& json, const std::string& text, const std::string& source);

}  // namespace trivet::data
