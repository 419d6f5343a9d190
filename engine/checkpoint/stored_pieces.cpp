#include "engine/checkpoint/stored_pieces.h"

#include <map>
#include <string_view>
#include <vector>

namespace trivet::checkpoint {

std::set<std::string> files_with(const Manifest& manifest, std::span<const Piece> wanted) {
  std::map<std::string_view, std::vector<const Piece*>> by_tensor;
  for (const Piece& piece : wanted) by_tensor[piece.name].push_back(&piece);
  std::set<std::string> files;
  for (const StoredPiece& stored : manifest.pieces) {
    if (files.contains(stored.file)) continue;
    for (const Piece* piece : by_tensor[stored.tensor])
      if (piece->shape == manifest.tensors.at(stored.tensor).shape &&
          !common_elements(piece->shape, region_of(stored), region_of(*piece)).empty()) {
        files.insert(stored.file);
        break;
      }
  }
  return files;
}

}  // namespace trivet::checkpoint
