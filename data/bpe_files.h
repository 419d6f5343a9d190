// Reads byte-level BPE tokenizers from the file formats in common use.
//
//   vocab.bpe, merges.txt   one merge per line, "left right" in the byte alphabet; ids follow GPT-2's rule
//   .tiktoken               "base64(token) rank" per line; the merges follow from the ranks
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/bpe.h"

namespace trivet::data {

std::shared_ptr<BpeTokenizer> bpe_from_merges(std::string_view text, const std::string& source);
std::shared_ptr<BpeTokenizer> bpe_from_tiktoken(std::string_view text, const std::string& source);

}  // namespace trivet::data
