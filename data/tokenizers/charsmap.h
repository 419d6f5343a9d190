// The precompiled map of characters with which sentencepiece normalizes text ("nmt_nfkc" and others): a trie of byte sequences
// and what replaces them. It is stored as the size of the trie in bytes (uint32), the trie (a double array of uint32, as the
// library Darts-clone lays it out), and the replacements, each followed by a zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

class Charsmap {
 public:
  // Throws DataError naming `source` if the bytes are not such a map.
  Charsmap(std::string_view bytes, const std::string& source);

  struct Entry {
    size_t bytes;  // length of the text that it replaces
    std::string_view replacement;
  };
  // The entry for the shortest or the longest beginning of `text`.
  std::optional<Entry> shortest(std::string_view text) const;
  std::optional<Entry> longest(std::string_view text) const;

 private:
  template <typename Visit>
  void for_each_entry(std::string_view text, Visit visit) const;
  std::string_view replacement_at(uint32_t offset) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace trivet::data
