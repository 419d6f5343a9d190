// Pieces of a checkpoint in host memory, where files are read to and written from. On a CPU they are the engine's own memory
// and nothing is copied.
#pragma once

#include <span>
#include <vector>

#include "core/buffer.h"
#include "engine/backend/backend.h"
#include "engine/checkpoint/piece.h"

namespace trivet {

class HostPieces {
 public:
  enum class Contents { Copied, None };
  // `pieces` of the backend's memory; the backend must outlive it.
  HostPieces(Backend& backend, std::vector<checkpoint::Piece> pieces, Contents contents = Contents::Copied);

  std::span<const checkpoint::Piece> pieces() const { return pieces_; }
  // To the pieces it was made of.
  void write_back(std::span<const checkpoint::Piece> to) const;

 private:
  Backend& backend_;
  MemoryMeter meter_;  // of host memory, which the plan does not speak of
  Buffer memory_;
  std::vector<checkpoint::Piece> pieces_;
};

}  // namespace trivet
