// One rank's file of a checkpoint: safetensors whose entries are pieces of tensors.
//
// A piece that is a complete tensor is stored under its name and shape, so that other programs can read it; any other piece is
// stored as "<name>#<k>". Checksums are computed from memory before each write.
#pragma once

#include <span>
#include <string>

#include "core/file_system.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece.h"

namespace trivet::checkpoint {

struct ShardIdentity {
  std::string run_id;
  int64_t step = 0;
  int rank = 0;
};

std::string shard_file_name(int rank);

// Writes, syncs and closes the file, and returns its rank's share of the manifest. Throws NumericsError when a piece holds a
// number that is not finite: such weights are never saved.
Manifest write_shard(FileSystem& files, const std::string& directory, const ShardIdentity& identity,
                     std::span<const Piece> pieces);

}  // namespace trivet::checkpoint
