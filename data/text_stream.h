// The text of tokens that appear one by one.
//
// A token by itself may be a part of a character, and the first token of a text may lose its space, so a few tokens are decoded
// together again and again, and what is new at the end is taken.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace trivet::data {

class TextStream {
 public:
  // The text continues `tokens`. The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::vector<int32_t> tokens);
  // The text that the token adds; empty as long as a character is not complete.
  std::string next(int32_t token);
  // Returns the text that was held back at the end.
  std::string rest();

 private:
  std::string added() const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;  // tokens that are decoded together
  size_t known_;                 // number of them whose text has been given out
};

}  // namespace trivet::data
