// Where ranks of a schedule wait for each other: those that have the same TIE (one alone waits for nobody), and all at
// SUM_LOSS.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "pipeline/instruction.h"

namespace trivet::pipeline {

using Meeting = std::vector<std::pair<size_t, size_t>>;  // (rank, place in its program)

// Throws std::logic_error for a rank that has one twice, and for a SUM_LOSS that not all ranks have.
std::vector<Meeting> find_meetings(const Schedule& schedule);

}  // namespace trivet::pipeline
