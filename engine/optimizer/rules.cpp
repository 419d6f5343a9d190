// The table of optimizers: which class is the rule of which type.
#include <stdexcept>

#include "engine/optimizer/adagrad.h"
#include "engine/optimizer/adam.h"
#include "engine/optimizer/lamb.h"
#include "engine/optimizer/lion.h"
#include "engine/optimizer/muon.h"
#include "engine/optimizer/sgd.h"

namespace trivet {

std::unique_ptr<UpdateRule> make_rule(const RuleContext& context) {
  switch (context.config.type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return std::make_unique<AdamRule>(context);
    case OptimizerType::Sgd: return std::make_unique<SgdRule>(context);
    case OptimizerType::Lion: return std::make_unique<LionRule>(context);
    case OptimizerType::Lamb: return std::make_unique<LambRule>(context);
    case OptimizerType::Adagrad: return std::make_unique<AdagradRule>(context);
    case OptimizerType::Muon: return std::make_unique<MuonRule>(context);
  }
  throw std::logic_error("optimizer: a type has no rule");
}

}  // namespace trivet
