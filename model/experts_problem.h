// What is wrong with a mixture of experts that a description asks for.
#pragma once

#include <optional>
#include <string>

#include "model/description.h"

namespace trivet::model {

// The description's defaults are filled in.
std::optional<Problem> find_experts_problem(const Description& d);
// See tensor_problem.
std::string experts_tensor_problem(const Description& d, int64_t ranks);

}  // namespace trivet::model
