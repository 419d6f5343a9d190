// Finds the stored pieces that hold what a rank wants to read.
#pragma once

#include <set>
#include <span>
#include <string>

#include "engine/checkpoint/common_elements.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece.h"

namespace trivet::checkpoint {

inline Region region_of(const StoredPiece& piece) { return {piece.box_start, piece.box_shape, piece.first, piece.count}; }
inline Region region_of(const Piece& piece) { return {piece.box_start, piece.box_shape, piece.first, piece.count}; }

// The files that hold some of the wanted pieces' elements. A wanted piece that the step does not have, or has in another shape,
// is left to whoever reads it.
std::set<std::string> files_with(const Manifest& manifest, std::span<const Piece> wanted);

}  // namespace trivet::checkpoint
