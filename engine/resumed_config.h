// Whether a run may continue from a checkpoint with its config: what must be as it was.
#pragma once

#include "engine/config/config.h"

namespace trivet {

namespace checkpoint {
class LoadedStep;
}  // namespace checkpoint

// Throws ConfigError if seed, batch, order of samples, model or optimizer differ (dropout may change).
void refuse_another_run(const Config& config, const ResolvedBatch& batch, const checkpoint::LoadedStep& step);

// What an optimizer has kept (moments, momenta, sums) means something only to its own kind: Muon would read AdamW's moments as
// momenta of matrices, and SGD would leave them unread. So a run does not continue with the states of another optimizer.
//
// Throws ConfigError if the checkpoint has the states of another optimizer than that of `config`. Adam and AdamW have the same.
void refuse_another_optimizer(const Config& config, const checkpoint::LoadedStep& step);

}  // namespace trivet
