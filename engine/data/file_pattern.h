// Data sets in several files: "shards/train_*.bin" names those of the folder whose names match.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

// `path` itself, or, if there is no such file and its last part contains a "*", the files that match it, in the order of their
// names. A "*" stands for any characters. Throws DataError if no file matches.
std::vector<std::string> matching_files(const std::string& path);

// Whether the name matches the pattern.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace trivet::data
