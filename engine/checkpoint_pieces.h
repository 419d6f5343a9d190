// The pieces that a rank writes to a checkpoint and reads from one: its part of every weight and optimizer state, by name.
//
//   "blocks.3.mlp.up.weight"                     float32: the master weights (of frozen parameters: the weights)
//   "optimizer.moment1.blocks.3.mlp.up.weight"   float32: optimizer states, named by optimizer_state_names
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/checkpoint/piece.h"
#include "engine/config/optimizer_config.h"
#include "zero/parameters.h"
#include "zero/staged_walk.h"

namespace trivet {

// The pieces to save. Each element belongs to exactly one rank, even if all ranks own everything (stage 0).
std::vector<checkpoint::Piece> checkpoint_pieces(zero::Parameters& parameters, const OptimizerConfig& optimizer);
// The pieces that load_pieces() reads.
std::vector<checkpoint::Piece> checkpoint_pieces_to_load(zero::Parameters& parameters, const OptimizerConfig& optimizer);
// Fills pieces from a checkpoint.
using ReadPieces = std::function<void(std::span<const checkpoint::Piece>)>;
struct LoadResources {
  ReadPieces read, read_on_host;  // into device memory, into host memory
  kernels::Kernels& kernels;
  Arena& buffers;  // stages what is in files
  zero::StagingOptions staging;
  bool weights_alone = false;  // optimizer states stay as they are
};
// Reads everything that this rank updates and computes its weights from that. The caller must call publish() afterwards.
void load_pieces(zero::Parameters& parameters, const OptimizerConfig& optimizer, const LoadResources& resources);

// Copies the values of a piece to their place in `whole`, the complete tensor as float32.
void copy_piece(kernels::Kernels& kernels, const checkpoint::Piece& piece, TensorView whole);

}  // namespace trivet
