// Checks that the requests of all ranks for one tensor fit together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hvd/request.h"

namespace trivet::hvd {

// "" or what differs, on which ranks: `allreduce of "w1": shape is [2, 3] on ranks 0, 2 and [3, 2] on rank 1; ...`.
// `world_ranks` are those of the process set; a rank without a request has joined.
std::string find_disagreement(const std::vector<std::optional<Request>>& by_rank, const std::vector<int>& world_ranks);

// "rank 1" or "ranks 0, 2"
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace trivet::hvd
