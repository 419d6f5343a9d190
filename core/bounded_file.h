// Whole small files in memory. Each kind of file has a limit of its own, so that a wrong file name (a disk image, /dev/zero)
// costs a message and not the memory of the machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet {

struct BoundedText {
  std::string text;
  std::string problem;  // "has 20000000 bytes; a config may have at most 1048576"; empty: it was read
};

// A file, or what comes out of a pipe. `kind` is what the limit is for: "a config".
BoundedText read_bounded(const std::string& path, int64_t limit_bytes, std::string_view kind);

// Are lists and objects nested deeper than this? What comes after malformed text does not count. Readers that handle a value
// inside a value by calling themselves would run out of stack.
bool json_is_deeper(std::string_view text, int levels);

}  // namespace trivet
