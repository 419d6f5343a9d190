// model.vocabulary_rows: an embedding may have more rows than the vocabulary has tokens, as published models have. No id names
// the rest of the rows; they train like the others, since the loss counts all of them.
#pragma once

#include <cstdint>

#include "engine/config/config.h"

namespace trivet {

// Rows of the embedding for a vocabulary of so many tokens. Throws ConfigError if the config states fewer.
int64_t vocabulary_rows(const Config& config, int64_t tokens);

// Returns the value of model.vocabulary for messages: "\"./chat\"", "50257".
std::string vocabulary_in_words(const Config& config);

}  // namespace trivet
