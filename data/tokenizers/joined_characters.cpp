#include "data/tokenizers/joined_characters.h"

#include "data/tokenizers/code_points.h"

namespace trivet::data {

void JoinedCharacters::add(std::string_view token) {
  char32_t previous = 0;
  bool first = true;
  for_each_code_point(token, [&](char32_t c, std::string_view) {
    if (!first) {
      const size_t bit = bit_of(previous, c);
      bits_[bit / 64] |= uint64_t{1} << (bit % 64);
    }
    first = false;
    previous = c;
  });
}

}  // namespace trivet::data
