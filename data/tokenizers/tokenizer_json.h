// Reads tokenizer.json, the file of Hugging Face's library tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/tokenizer.h"

namespace trivet::data {

inline constexpr size_t kLongestWrittenToken = size_t{1} << 16;  // in bytes, as the file writes it

// Ids of added tokens. The library gives them the ids of the vocabulary, and then those after it, whatever the file says.
enum class AddedIds : uint8_t {
  AsWritten,    // what Trivet has stored
  AsInLibrary,  // the file of another program, which must say what the library makes of it
};

// `text` is the file, `json` what it says. Throws DataError naming `source` and what is not supported.
std::shared_ptr<Tokenizer> read_tokenizer_json(const nlohmann::json& json, const std::string& text, const std::string& source,
                                               AddedIds added_ids = AddedIds::AsWritten);

}  // namespace trivet::data
