// Finds the cores that this process may use, and divides them among ranks.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

std::vector<int> allowed_cores();
// "0-3,8" -> {0, 1, 2, 3, 8}. Throws ConfigError for an invalid list, for cores that are not among `allowed`, and for one that
// is named twice.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed);
// Splits `cores`, of which there is one for each rank, into contiguous parts; if they do not divide evenly, the first parts are
// one larger.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank, int ranks);
// "0-3,8"
std::string core_list_text(const std::vector<int>& cores);
int memory_nodes();

}  // namespace trivet::cli
