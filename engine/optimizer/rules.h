// The table of optimizers: which class is the rule of which type.
#pragma once

#include <stdexcept>

#include "engine/optimizer/adagrad.h"
#include "engine/optimizer/adam.h"
#include "engine/optimizer/lamb.h"
#include "engine/optimizer/lion.h"
#include "engine/optimizer/muon.h"
#include "engine/optimizer/sgd.h"

namespace trivet {

// Calls use.operator()<Rule>() with the rule of this type, and returns its result.
template <typename Use>
auto with_rule(OptimizerType type, Use&& use) {
  switch (type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return use.template operator()<AdamRule>();
    case OptimizerType::Sgd: return use.template operator()<SgdRule>();
    case OptimizerType::Lion: return use.template operator()<LionRule>();
    case OptimizerType::Lamb: return use.template operator()<LambRule>();
    case OptimizerType::Adagrad: return use.template operator()<AdagradRule>();
    case OptimizerType::Muon: return use.template operator()<MuonRule>();
  }
  throw std::logic_error("optimizer: a type has no rule");
}

}  // namespace trivet
