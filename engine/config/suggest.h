// "did you mean": the known names nearest to an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet::config {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);

// At most three names that are near enough to be meant, the best first; a name of which fewer letters are wrong comes first.
std::vector<std::string> nearest_names(const std::string& unknown, const std::vector<std::string>& known);

// `"a"`, `"a" or "b"`, `"a", "b" or "c"`.
std::string one_of(const std::vector<std::string>& names);

}  // namespace trivet::config
