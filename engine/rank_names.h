// Ranks and their hosts in the words of messages.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trivet {

// "rank 2", "ranks 0, 1"
std::string ranks_text(const std::vector<int>& ranks);
// The hosts of these ranks, each once: "a, b". `host_of_rank` [world rank].
std::string hosts_text(const std::vector<int>& ranks, std::span<const std::string> host_of_rank);

}  // namespace trivet
