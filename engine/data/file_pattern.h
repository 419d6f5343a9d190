// Data sets in several files: "shards/train_*.bin" names those of the folder whose names match.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

struct MatchingFiles {
  std::vector<std::string> paths;
  std::string note = "";  // on folders and hidden files whose names match, too, but that are left out
};

// `path` itself, or, if there is no such file and its last part contains a "*", the files that match it, in the order of their
// names. A "*" stands for any characters, but at the beginning of a name not for "." (a hidden file). Throws DataError if no
// file matches.
MatchingFiles matching_files(const std::string& path);

// Whether neither the file nor, for a pattern, its folder exists.
bool is_absent(const std::string& path);

// Whether the name matches the pattern.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace trivet::data
