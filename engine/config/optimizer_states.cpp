#include "engine/config/optimizer_states.h"

#include <stdexcept>

namespace trivet {
namespace {

struct OptimizerFacts {
  std::vector<std::string> states;
  bool visits_once = true, betas_cycle = false;
};

OptimizerFacts facts_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return {.states = {"moment1", "moment2"}, .betas_cycle = true};
    case OptimizerType::Sgd: return {.states = {"momentum"}};
    case OptimizerType::Lion: return {.states = {"moment"}, .betas_cycle = true};
    case OptimizerType::Lamb: return {.states = {"moment1", "moment2", "update"}, .visits_once = false, .betas_cycle = true};
    case OptimizerType::Adagrad: return {.states = {"sum_of_squares"}};
    // For matrices: the momentum, and room for the update.
    case OptimizerType::Muon: return {.states = {"moment1", "moment2"}, .visits_once = false};
  }
  throw std::logic_error("optimizer: nothing is known of a type");
}

}  // namespace

int optimizer_states(OptimizerType type, const OptimizerConfig& config) {
  return static_cast<int>(optimizer_state_names(type, config).size());
}

std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config) {
  if (type == OptimizerType::Sgd && !(config.momentum > 0)) return {};
  return facts_of(type).states;
}

bool visits_states_once(OptimizerType type) { return facts_of(type).visits_once; }
bool betas_cycle(OptimizerType type) { return facts_of(type).betas_cycle; }

}  // namespace trivet
