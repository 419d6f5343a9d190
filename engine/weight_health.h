// Checks whether the weights of all ranks are finite, also in the model's dtype, and how large they are. This distinguishes an
// overflow of gradients from weights that are lost.
#pragma once

#include <span>
#include <string>

#include "comm/participants.h"
#include "engine/checkpoint/piece.h"
#include "kernels/interface.h"

namespace trivet {

struct WeightHealth {
  // "blocks.0.norm.weight on rank 1 (element 3 is nan)", from the lowest rank that has such an element; empty: none has.
  std::string not_finite;
  double largest = 0;      // magnitude of a finite element
  std::string largest_in;  // the weight that holds it

  bool finite() const { return not_finite.empty(); }
};

// All ranks call it together, each with the pieces that it saves (checkpoint_pieces.h; optimizer states are left out), and get
// the same result. `kernels` are those of the device that holds the pieces.
WeightHealth inspect_weights(std::span<const checkpoint::Piece> pieces, kernels::Kernels& kernels,
                             const comm::Participants& ranks);

}  // namespace trivet
