// Generators of compute order: which stage runs what, in which order. Passes (pipeline/passes) add everything else.
//
// Each returns one program per pipeline rank, made of F, I and W of whole stages.
#pragma once

#include "pipeline/instruction.h"

namespace trivet::pipeline {

// All forwards, then all backwards (Huang et al. 2019). Keeps the activations of all microbatches.
Schedule gpipe(int stages, int microbatches);

// Warm-up forwards, then one forward and one backward in turn (PipeDream-flush, Narayanan et al. 2021). Stage s of P keeps the
// activations of at most min(M, P - s) microbatches.
Schedule one_forward_one_backward(int stages, int microbatches);

}  // namespace trivet::pipeline
