// Data sets in several files: "shards/train_*.bin" names those of the folder whose names match.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet {
class OutputGuard;
}

namespace trivet::data {

struct MatchingFiles {
  std::vector<std::string> paths;
  std::string note = "";  // on what matches, too, but is left out
};

// `path` itself, or, if there is no such file and its last part contains a "*", the files that match it, in the order of their
// names. A "*" stands for any characters, but at the beginning of a name not for "." (a hidden file). Empty files and logs of
// ranks are left out. Throws DataError if no file matches.
MatchingFiles matching_files(const std::string& path);

// Checks whether it is a name with a "*" in its last part, and not that of a file.
bool is_pattern(const std::string& path);

// Names what is read to who checks outputs: a file, all of a folder, or what matches.
void name_inputs(OutputGuard& guard, const std::string& path, const std::string& key);

// Checks whether neither the file nor, for a pattern, its folder exists.
bool is_absent(const std::string& path);

// Checks whether the name matches the pattern.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace trivet::data
