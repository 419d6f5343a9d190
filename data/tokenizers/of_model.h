// The tokenizer of a model, and what the model's folder says about two of its tokens, which no tokenizer.json says: the token
// that ends an answer, and the one that begins a text.
//
// The first of these files that names a token decides: tokenizer_config.json and special_tokens_map.json (eos_token, bos_token,
// a text or an object with "content"), generation_config.json, config.json (eos_token_id, bos_token_id, a number or a list).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace trivet::data {

struct TokenRoles {
  std::string end_of_text, begin_of_text;  // "": the folder names none
  std::string unknown_ends = {};           // ids that config.json alone gives the end of a text, none of which has a token
};

// `file`: the tokenizer's own in that folder. Throws DataError if the folder names a token that the tokenizer does not have,
// and for one of these files that is broken.
TokenRoles roles_in_folder(const std::string& folder, const Tokenizer& tokenizer, const std::string& file);

// Throws DataError for one of these files that is broken, where no tokenizer is read that would need it.
void check_role_files(const std::string& folder);

// Returns the tokenizer itself if it has these roles already.
std::shared_ptr<Tokenizer> with_roles(std::shared_ptr<Tokenizer> tokenizer, const TokenRoles& roles);

// The value of "trivet_tokenizer" in the text of such a tokenizer, which also holds the text of the tokenizer without its
// roles.
inline constexpr std::string_view kOfModel = "of a model";

}  // namespace trivet::data
