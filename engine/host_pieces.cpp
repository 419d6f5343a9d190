#include "engine/host_pieces.h"

#include "core/arena.h"

namespace trivet {

HostPieces::HostPieces(Backend& backend, std::vector<checkpoint::Piece> pieces, Contents contents)
    : backend_(backend), pieces_(std::move(pieces)) {
  if (backend_.device() == Device::Cpu) return;
  const auto room = [](const checkpoint::Piece& piece) -> int64_t {
    if (piece.staged) return 0;  // it is read from its StagedTensor
    return (piece.data.bytes() + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  };
  int64_t bytes = 0;
  for (const checkpoint::Piece& piece : pieces_) bytes += room(piece);
  memory_ = Buffer(backend_.staging_allocator(), meter_, MemoryCategory::Buffers, DType::UInt8, {bytes});
  auto* next = static_cast<std::byte*>(memory_.view().data);
  for (checkpoint::Piece& piece : pieces_) {
    if (piece.staged) continue;
    TensorView host = piece.data;
    host.data = next;
    next += room(piece);
    if (contents == Contents::Copied) backend_.kernels().to_host(piece.data, host);
    piece.data = host;
  }
}

void HostPieces::write_back(std::span<const checkpoint::Piece> to) const {
  if (backend_.device() == Device::Cpu) return;
  for (size_t i = 0; i < pieces_.size(); ++i) backend_.kernels().from_host(pieces_[i].data, to[i].data);
}

}  // namespace trivet
