// Whether the weights of all ranks are finite, also in the model's dtype, and how large they are: what tells an overflow of
// gradients from weights that are gone.
#pragma once

#include <span>
#include <string>

#include "engine/checkpoint/participants.h"
#include "engine/checkpoint/piece.h"
#include "kernels/kernels.h"

namespace trivet {

struct WeightHealth {
  std::string not_finite;  // "blocks.0.norm.weight on rank 1 (element 3 is nan)": of the lowest rank that has one; empty: none
  double largest = 0;      // magnitude of the finite ones
  std::string largest_in;  // the weight that holds it

  bool finite() const { return not_finite.empty(); }
};

// All ranks call it together, with what each saves (checkpoint_pieces.h; optimizer states are left out), and get the same.
// `kernels`: of the device that holds the pieces.
WeightHealth inspect_weights(std::span<const checkpoint::Piece> pieces, kernels::Kernels& kernels,
                             const checkpoint::Participants& ranks);

}  // namespace trivet
