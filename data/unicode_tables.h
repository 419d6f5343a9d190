// Lists which code points are letters (general category L*) and numbers (N*) in Unicode 16, and which code points are so new
// that a library may not know them. Sorted ranges, both ends included.
#pragma once

#include <span>

namespace trivet::data {

struct CodePointRange {
  char32_t first, last;
};
struct AddedRange {
  char32_t first, last;
  int version;           // the version of Unicode in which they were added
  const char* category;  // "Lo"
};

std::span<const CodePointRange> letter_ranges();  // \p{L}
std::span<const CodePointRange> number_ranges();  // \p{N}
std::span<const AddedRange> added_ranges();       // after Unicode 8

const AddedRange* added_range_of(char32_t c);  // null: in Unicode 8 or none

}  // namespace trivet::data
