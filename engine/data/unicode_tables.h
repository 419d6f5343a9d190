// Which code points are letters (general category L*) and numbers (N*): Unicode 15, sorted ranges, both ends included.
#pragma once

#include <span>

namespace trivet::data {

struct CodePointRange {
  char32_t first, last;
};

std::span<const CodePointRange> letter_ranges();  // \p{L}
std::span<const CodePointRange> number_ranges();  // \p{N}

}  // namespace trivet::data
