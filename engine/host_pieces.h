// Pieces of a checkpoint in host memory, from which files are written and into which they are read. On a CPU these are the
// engine's own memory, and nothing is copied.
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
  // `pieces` are in the backend's memory; the backend must outlive this object.
  HostPieces(Backend& backend, std::vector<checkpoint::Piece> pieces, Contents contents = Contents::Copied);

  std::span<const checkpoint::Piece> pieces() const { return pieces_; }
  // Copies the contents back to the pieces that it was created from.
  void write_back(std::span<const checkpoint::Piece> to) const;

 private:
  Backend& backend_;
  MemoryMeter meter_;  // counts host memory, which is not in the plan
  Buffer memory_;
  std::vector<checkpoint::Piece> pieces_;
};

}  // namespace trivet
