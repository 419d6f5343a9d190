// What context ranks do for attention, and which tokens each has, as a config decides it.
#pragma once

#include <string>

#include "core/sequence_part.h"
#include "engine/config/config.h"

namespace trivet::config {

// Says why this many context ranks cannot exchange tokens for heads; empty if they can.
std::string ulysses_problem(const Config& config, int64_t ranks);
// Returns what they do, which is not Auto: that is decided by the heads of the described model. For a program's own layers
// make_plan has already replaced it with Ulysses. It is UlyssesRing only if several runs of several neighbours are left.
ContextKind context_kind(const Config& config);
// The consecutive ranks that exchange tokens for heads and, together, keep the tokens that they have; 1: no such runs.
int64_t context_neighbours(const Config& config);
// Ranks that keep their own tokens have balanced parts of a sequence, except where leaves of tokens are consecutive.
SequencePart::Cut context_cut(const Config& config);
// A line of a plan; empty without context ranks.
std::string describe_context(const Config& config);

}  // namespace trivet::config
