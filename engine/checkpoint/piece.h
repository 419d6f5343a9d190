// What a rank holds of a logical tensor. Checkpoints speak of whole tensors by global name and shape; a piece says which part.
//
// A piece is a range of the row-major elements of a box: the box is what tensor parallelism leaves a rank (all of the tensor
// when the tensor size is 1), the range what ZeRO leaves it of the flattened box.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor_view.h"
#include "zero/placement.h"

namespace trivet::checkpoint {

struct Piece {
  std::string name;  // e.g. "blocks.3.attention.qkv.weight", "optimizer.moment1.blocks.3.attention.qkv.weight"
  Shape shape;       // of the whole tensor
  Shape box_start, box_shape;
  int64_t first = 0, count = 0;  // elements of the flattened box
  TensorView data;               // [count]; read when saving, written when loading
  // Where the data is if it has no memory: elements [place_first, place_first + count) of this. When saving only.
  zero::TensorPlace* place = nullptr;
  int64_t place_first = 0;
  DType used_as = DType::Float32;  // what layers compute with: a weight must be finite in that, too. When saving only.
};

inline Piece whole_box_piece(std::string name, const Shape& shape, int64_t first, TensorView data) {
  Shape start = shape;
  for (int i = 0; i < start.dims(); ++i) start[i] = 0;
  return {std::move(name), shape, start, shape, first, data.elements(), data};
}

}  // namespace trivet::checkpoint
