// States of an optimizer (moments, momenta, sums) suit only its own kind: Muon would read AdamW's moments as momenta of
// matrices, and SGD would leave them unread. So a run does not continue with the states of another optimizer.
#pragma once

#include "engine/config/config.h"

namespace trivet {

namespace checkpoint {
class LoadedStep;
}  // namespace checkpoint

// Throws ConfigError if the checkpoint has the states of another optimizer than that of `config`. Adam and AdamW have the same.
void refuse_another_optimizer(const Config& config, const checkpoint::LoadedStep& step);

}  // namespace trivet
