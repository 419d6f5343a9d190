#include "engine/optimizer/optimizer_states.h"

namespace trivet {

int optimizer_states(OptimizerType type, const OptimizerConfig& config) {
  return static_cast<int>(optimizer_state_names(type, config).size());
}

std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config) {
  switch (type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return {"moment1", "moment2"};
    case OptimizerType::Sgd: return config.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
    case OptimizerType::Lion: return {"moment"};
    case OptimizerType::Adagrad: return {"sum_of_squares"};
    case OptimizerType::Lamb: return {"moment1", "moment2", "update"};
    case OptimizerType::Muon: return {"moment1", "moment2"};  // for matrices: momentum, and room for the update
  }
  return {};
}

}  // namespace trivet
