// A tokenizer whose tokens are the code points of the training text; ids follow the order of code points.
#pragma once

#include <unordered_map>

#include "data/tokenizer.h"

namespace trivet::data {

class CharactersTokenizer : public Tokenizer {
 public:
  // The characters must be sorted and distinct.
  explicit CharactersTokenizer(std::vector<char32_t> characters);

  std::string name() const override { return "characters"; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_text() const override;
  size_t piece_bytes(std::string_view text, size_t limit) const override;

 private:
  int32_t id_of(char32_t character) const;  // -1: none

  std::vector<char32_t> characters_;
  std::vector<int32_t> ascii_;  // id of each character below 128, the most common ones
  std::unordered_map<char32_t, int32_t> other_;
};

// The distinct code points of the text, sorted. Throws DataError with the byte position if the text is not UTF-8.
std::vector<char32_t> distinct_characters(std::string_view text);

}  // namespace trivet::data
