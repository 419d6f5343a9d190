// All ranks must register the same parameters with the same config: otherwise they would exchange parts of different tensors.
#pragma once

#include <span>

#include "comm/participants.h"
#include "embed/units.h"
#include "engine/config/config.h"

namespace trivet::embed {

// Collective. Throws CommError (RanksDisagree) on all ranks, naming the first difference and the two ranks. Throws ConfigError
// on all ranks if an initial value of rank 0, the only ones that count, is not finite, or is infinite in the type of the
// weights: no training can begin with it. That names the parameter and the element.
void check_agreement(const Config& config, std::span<const Parameter> parameters, std::span<const Unit> units,
                     const comm::Participants& ranks);

}  // namespace trivet::embed
