// Finds characters that are neighbours within a token of a vocabulary.
//
// Between two characters that no token has as neighbours, a text may be cut: no token covers both. Splitting long texts there
// changes no id, because a merge, like the best path, never crosses such a place.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trivet::data {

class JoinedCharacters {
 public:
  void add(std::string_view token);
  // May be true for neighbours that are in no token, but never false for those that are.
  bool may_join(char32_t left, char32_t right) const {
    const size_t bit = bit_of(left, right);
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  static constexpr int kBits = 21;
  static size_t bit_of(char32_t left, char32_t right) {
    const uint64_t pair = uint64_t{left} << 32 | right;
    return static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> (64 - kBits));
  }
  std::vector<uint64_t> bits_ = std::vector<uint64_t>((size_t{1} << kBits) / 64);
};

}  // namespace trivet::data
