// The places where ranks of a schedule wait for each other: at a TIE, all ranks that have it (a single one does not wait); at
// SUM_LOSS, all ranks.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "pipeline/instruction.h"

namespace trivet::pipeline {

using Meeting = std::vector<std::pair<size_t, size_t>>;  // (rank, position in its program)

// Throws std::logic_error if a rank has the same meeting twice, or if only some ranks have a SUM_LOSS.
std::vector<Meeting> find_meetings(const Schedule& schedule);

}  // namespace trivet::pipeline
