// Facts about an optimizer that are known without running it (engine/optimizer has what it computes). Plans, checks,
// checkpoints and tests take them from this table; a new optimizer is a row of it.
#pragma once

#include <string>
#include <vector>

#include "engine/config/optimizer_config.h"

namespace trivet {

struct OptimizerTraits {
  // Names in checkpoints of the float32 tensors that it keeps per parameter, in addition to the master weights.
  std::vector<std::string> states;
  bool visits_once = true;                         // a step visits weights and states only once
  bool betas_cycle = false;                        // the scheduler OneCycle, with cycle_momentum, changes its betas
  bool whole_matrices = false;                     // its update needs whole matrices, so that no tensor ranks may divide them
  double lr = 1e-3, epsilon = 1e-8, momentum = 0;  // defaults
  bool nesterov = false;                           // default
};

OptimizerTraits traits_of(OptimizerType type);

// OptimizerTraits::states, without the momentum of an SGD that has none.
std::vector<std::string> optimizer_state_names(const OptimizerConfig& config);
int optimizer_states(const OptimizerConfig& config);  // number of states

}  // namespace trivet
