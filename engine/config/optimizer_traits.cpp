#include "engine/config/optimizer_traits.h"

#include <stdexcept>

namespace trivet {

OptimizerTraits traits_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return {.states = {"moment1", "moment2"}, .betas_cycle = true};
    case OptimizerType::Sgd: return {.states = {"momentum"}};
    case OptimizerType::Lion: return {.states = {"moment"}, .betas_cycle = true};
    case OptimizerType::Lamb: return {.states = {"moment1", "moment2", "update"}, .visits_once = false, .betas_cycle = true};
    case OptimizerType::Adagrad: return {.states = {"sum_of_squares"}, .lr = 1e-2, .epsilon = 1e-10};
    case OptimizerType::Muon:  // states of matrices: the momentum, and room for the update
      return {
          .states = {"moment1", "moment2"}, .visits_once = false, .whole_matrices = true, .momentum = 0.95, .nesterov = true};
  }
  throw std::logic_error("optimizer: nothing is known of a type");
}

std::vector<std::string> optimizer_state_names(const OptimizerConfig& config) {
  if (config.type == OptimizerType::Sgd && !(config.momentum > 0)) return {};
  return traits_of(config.type).states;
}

int optimizer_states(const OptimizerConfig& config) { return static_cast<int>(optimizer_state_names(config).size()); }

}  // namespace trivet
