// The tokenizer of a model of sentencepiece (tokenizer.model), as its own library encodes and decodes.
//
//   text -> normalized: the charsmap, runs of spaces, a space in front, spaces as U+2581 -> pieces
//
// A byte that is not UTF-8 counts as U+FFFD. Runs of unknown characters are one unknown piece, or their bytes if the model
// falls back to them. The names of control pieces, such as <s>, are text like any other.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace trivet::data {

// Throws DataError naming `source`.
std::shared_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view file, const std::string& source);

}  // namespace trivet::data
