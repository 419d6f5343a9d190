#include "engine/checkpoint/finite_source.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/finite.h"

namespace trivet::checkpoint {

void FiniteSource::refuse(const Piece& piece, int64_t element) const {
  const int64_t row = piece.box_start[0] + (piece.first + element) / (piece.box_shape.elements() / piece.box_shape[0]);
  const bool overflows = first_not_finite(piece.data.slice(element, 1)) < 0;
  throw CheckpointError(
      ExitCode::CheckpointCorrupt,
      fmt::format("{}: {} has an element that is {}: {}", key_, weights_.origin(piece.name, row),
                  not_finite_value(piece.data, element, piece.used_as),
                  overflows ? "train in bf16 or float32, or use other weights"
                            : "no training can begin with it, whatever its learning rate; the file is damaged, or the run that "
                              "wrote it had diverged: get the file again, or use the weights of an earlier step"));
}

void FiniteSource::read(std::span<const Piece> wanted) const {
  weights_.read(wanted);
  for (const Piece& piece : wanted) {
    if (piece.count == 0 || !is_float(piece.data.dtype)) continue;
    if (const int64_t element = first_not_finite(piece.data, piece.used_as); element >= 0) refuse(piece, element);
  }
}

}  // namespace trivet::checkpoint
