// Visiting what a rank owns, wherever it lies: pieces of owned ranges are brought to memory, used, and taken back.
//
//   neither             read 0 | use 0 | write 0 | read 1 | use 1 | write 1 | ...
//   read_ahead                   use 0 | write 0            use 1 | write 1          (read 1 beside use 0)
//   both                read 0 | use 0   | use 1   | use 2   | ...
//                                read 1    read 2    read 3                           (one set of buffers each: three sets)
//                                          write 0   write 1
//
// What is in memory already is given as it is: no copy. A visit computes the same bits either way.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "zero/parameter_group.h"

namespace trivet::zero {

// Of the owned range of a group; `first` counts from the beginning of the range.
struct OwnedPiece {
  ParameterGroup* group = nullptr;
  int64_t first = 0, count = 0;
};

enum class Access : uint8_t { None, Read, Write, ReadWrite };

// What a visit does with each tensor; those with None may have no memory in it. With Write what was there is not read: all of
// it must be written. Pieces that are written begin at multiples of kPieceAlignment elements, and end there or with the range.
struct RangeAccess {
  Access master = Access::None, copy_out = Access::None;
  std::vector<Access> states;  // None where there are fewer
  bool gradient = false;       // is read
};
RangeAccess access_to_all(const ParameterGroup& group, Access access);

inline constexpr int64_t kPieceAlignment = kStagingAlignment / 2;  // elements of two bytes: the smallest there are

// All of the owned range: in pieces of at most so many elements where some of it is to be staged, otherwise in one.
std::vector<OwnedPiece> pieces_of(ParameterGroup& group, int64_t most_elements);

// Calls use(piece, range), one piece after the other; `range` is of the piece's elements alone, its gradient included. Staging
// memory is taken from `buffers` for the time of the call, or from the host's where ranges are for its kernels
// (OwnedRange::host): for all of the pieces, or for none.
// `least_set_bytes`: more than 0 where data ranks have other pieces than each other: then all take memory for 1 + read_ahead +
// write_behind pieces of so many bytes, as it was planned for one of them.
using UsePiece = std::function<void(const OwnedPiece&, const OwnedRange&)>;
void visit(std::span<const OwnedPiece> pieces, const RangeAccess& access, Arena& buffers, const StagingOptions& options,
           const UsePiece& use, int64_t least_set_bytes = 0);
// Of a piece of `elements` with this access, wherever in the owned range it begins: bytes of memory that it is staged in at
// most.
int64_t most_staged_bytes(ParameterGroup& group, const RangeAccess& access, int64_t elements);

}  // namespace trivet::zero
