#include "engine/optimizer/optimizer_states.h"

#include "engine/optimizer/rules.h"

namespace trivet {

int optimizer_states(OptimizerType type, const OptimizerConfig& config) {
  return static_cast<int>(optimizer_state_names(type, config).size());
}

std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config) {
  return with_rule(type, [&]<typename Rule>() { return Rule::state_names(config); });
}

bool visits_states_once(OptimizerType type) {
  return with_rule(type, []<typename Rule>() { return Rule::kVisitsOnce; });
}

bool betas_cycle(OptimizerType type) {
  return with_rule(type, []<typename Rule>() { return Rule::kBetasCycle; });
}

}  // namespace trivet
