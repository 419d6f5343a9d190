// Finds the known names nearest to an unknown one, for "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet::config {

// The least number of insertions, deletions, replacements and swaps of neighbouring letters that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);

// Returns at most three names that are close enough to be what the user meant, the one with the fewest edits first.
std::vector<std::string> nearest_names(const std::string& unknown, const std::vector<std::string>& known);

// `"a"`, `"a" or "b"`, `"a", "b" or "c"`.
std::string one_of(const std::vector<std::string>& names);

}  // namespace trivet::config
