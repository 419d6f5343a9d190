// Tokens that were added to a vocabulary and are recognized in the text before anything else happens to it: special tokens such
// as <|endoftext|>, and words that must stay whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_trie.h"

namespace trivet::data {

enum class SpecialTokens { AsText, Recognized };

struct AddedToken {
  int32_t id = 0;
  std::string content = "";
  bool single_word = false;             // not within a longer word
  bool lstrip = false, rstrip = false;  // takes the white space at its left or right with it
  bool special = false;
};

// Finds tokens from left to right; of those that begin at one place the longest is taken.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }
  // Checks whether they are found alike in a text that is cut between a visible character and a space.
  bool can_cut_at_space() const;

  // Calls `rest` for the text between tokens, if there is any, and `token` for each token.
  void split(std::string_view text, SpecialTokens special, const std::function<void(std::string_view rest)>& rest,
             const std::function<void(int32_t id)>& token) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // to indices of tokens_
};

}  // namespace trivet::data
