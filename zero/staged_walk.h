// Visits what a rank owns, wherever it is kept: pieces of owned ranges are brought into memory, used, and written back.
//
//   neither             read 0 | use 0 | write 0 | read 1 | use 1 | write 1 | ...
//   read_ahead                   use 0 | write 0            use 1 | write 1          (read 1 during use 0)
//   both                read 0 | use 0   | use 1   | use 2   | ...
//                                read 1    read 2    read 3                           (one set of buffers each: three in all)
//                                          write 0   write 1
//
// Tensors that are already in memory are used there, without a copy. A visit computes the same bits either way.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "zero/parameter_group.h"

namespace trivet::zero {

// A piece of the owned range of a group; `first` counts from the beginning of the range.
struct OwnedPiece {
  ParameterGroup* group = nullptr;
  int64_t first = 0, count = 0;
};

enum class Access : uint8_t { None, Read, Write, ReadWrite };

// The access that a visit needs to each tensor. Tensors with None may have no memory during the visit. With Write the
// old values are not read, so all of the tensor must be written. Pieces that are written begin at multiples of
// kPieceAlignment elements, and they end at one or at the end of the range.
struct RangeAccess {
  Access master = Access::None, copy_out = Access::None;
  std::vector<Access> states;  // states without an entry have None
  bool gradient = false;       // whether it is read
};
RangeAccess access_to_all(const ParameterGroup& group, Access access);

inline constexpr int64_t kPieceAlignment = kStagingAlignment / 2;  // for elements of two bytes, the smallest that exist

// Returns all of the owned range, in pieces of at most `most_elements` if some of it has to be staged, otherwise in one piece.
std::vector<OwnedPiece> pieces_of(ParameterGroup& group, int64_t most_elements);

// Calls use(piece, range) for one piece after another; `range` and its gradient cover only the elements of the piece. Staging
// memory is taken from `buffers` for the time of the call, or from the host's staging memory if the ranges are for the host's
// kernels (OwnedRange::host), which must be so for all of the pieces or for none. `least_set_bytes` is greater than 0 if data
// ranks have different pieces: then all ranks take memory for 1 + read_ahead + write_behind pieces of this many bytes, as
// planned for one of them.
using UsePiece = std::function<void(const OwnedPiece&, const OwnedRange&)>;
void visit(std::span<const OwnedPiece> pieces, const RangeAccess& access, Arena& buffers, const StagingOptions& options,
           const UsePiece& use, int64_t least_set_bytes = 0);
// Returns the most bytes of staging memory that a piece of `elements` needs with this access, wherever in the owned range it
// begins.
int64_t most_staged_bytes(ParameterGroup& group, const RangeAccess& access, int64_t elements);

}  // namespace trivet::zero
