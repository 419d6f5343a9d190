// A text of several parts, such as a question and its answer, encoded as one, and the tokens of each part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace trivet::data {

struct TextPart {
  std::string text;
  bool ignored = false;  // by the loss
  bool apart = false;    // no token may belong to this part and to the one before it
};

struct EncodedPiece {
  std::vector<int32_t> ids;
  std::vector<size_t> ends;  // ids up to the end of each part; ascending
};

// A token that belongs to a part that the loss ignores and to one that it counts is counted, as in the masks of transformers
// (return_assistant_tokens_mask). Where no token may belong to both, and one would, both become texts of their own.
EncodedPiece encode_parts(const Tokenizer& tokenizer, std::span<const TextPart> parts, const TextToEncode& how);

}  // namespace trivet::data
