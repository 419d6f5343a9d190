// Turns tokens into text again (the "decoder" of a tokenizer.json).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "data/tokenizers/component.h"

namespace trivet::data {

// Null for null: tokens are joined with spaces. Throws DataError naming `source` and the component that is not supported.
std::unique_ptr<Decoder> read_decoder(const nlohmann::json& json, const std::string& source);

// The bytes of tokens that the decoder ByteLevel reads, which are written in the byte alphabet.
std::string bytes_of_byte_level(std::string_view token);

// "<0x0A>" is the byte 10; -1: not the name of a byte.
int byte_of_name(std::string_view token);

}  // namespace trivet::data
