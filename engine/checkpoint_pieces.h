// What a rank writes to a checkpoint and reads from one: its part of every weight and optimizer state, by name.
//
//   "blocks.3.mlp.up.weight"                     float32: the master weights (frozen ones: as they are)
//   "optimizer.moment1.blocks.3.mlp.up.weight"   float32: optimizer states, named by optimizer_state_names
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/checkpoint/piece.h"
#include "engine/config/config.h"
#include "engine/parameters.h"
#include "zero/staged_walk.h"

namespace trivet {

// To save: each element belongs to exactly one rank, also where all ranks own everything (stage 0).
std::vector<checkpoint::Piece> checkpoint_pieces(Parameters& parameters, const OptimizerConfig& optimizer, int rank);
// Fills pieces with what a checkpoint has of them.
using ReadPieces = std::function<void(std::span<const checkpoint::Piece>)>;
struct LoadResources {
  ReadPieces read, read_on_host;  // pieces of the device's memory, of the host's
  kernels::Kernels& kernels;
  Arena& buffers;  // for what is in files
  zero::StagingOptions staging;
};
// Reads all that this rank updates, and makes its weights of it; publish() follows.
void load_pieces(Parameters& parameters, const OptimizerConfig& optimizer, const LoadResources& resources);

// Puts the values of a piece at their place in `whole`, the whole tensor as float32.
void copy_piece(kernels::Kernels& kernels, const checkpoint::Piece& piece, TensorView whole);

}  // namespace trivet
