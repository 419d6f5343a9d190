// The added tokens that a model's folder names outside of its tokenizer's own file, as transformers 5 reads them:
// added_tokens_decoder of tokenizer_config.json, or without it added_tokens.json, and the lists of extra special tokens.
//
// Their settings replace those of the file. A token that the file does not have gets the next free id.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace trivet::data {

// Returns the text of a tokenizer.json with these tokens: the same text if it says the same already. `file`: its path in the
// folder. Throws DataError where the folder gives a new token an id that is not the next free one, or a file of it is broken.
std::string with_folder_tokens(const std::string& text, const std::string& folder, const std::string& file);

// Throws DataError if the folder names a token that the tokenizer, which is not a tokenizer.json, does not have.
void refuse_folder_tokens(const Tokenizer& tokenizer, const std::string& folder, const std::string& file);

}  // namespace trivet::data
