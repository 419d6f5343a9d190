// The part of a logical tensor that a rank holds. Checkpoints identify tensors by global name and shape; a piece says which
// part of a tensor it is.
//
// A piece is a range of the row-major elements of a box. The box is the rank's part under tensor parallelism (all of the tensor
// when the tensor size is 1), and the range is the rank's part of the flattened box under ZeRO.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor_view.h"
#include "zero/placement.h"

namespace trivet::checkpoint {

struct Piece {
  std::string name;  // e.g. "blocks.3.attention.qkv.weight", "optimizer.moment1.blocks.3.attention.qkv.weight"
  Shape shape;       // shape of the complete tensor
  Shape box_start, box_shape;
  int64_t first = 0, count = 0;  // elements of the flattened box
  TensorView data;               // [count]; read when saving, written when loading
  // Where the data is if it has no memory: elements [staged_first, staged_first + count) of this tensor. Only for saving.
  zero::StagedTensor* staged = nullptr;
  int64_t staged_first = 0;
  DType used_as = DType::Float32;  // type that layers compute with; weights must be finite in it, too.
};

inline Piece whole_box_piece(std::string name, const Shape& shape, int64_t first, TensorView data) {
  Shape start = shape;
  for (int i = 0; i < start.dims(); ++i) start[i] = 0;
  return {std::move(name), shape, start, shape, first, data.elements(), data};
}

}  // namespace trivet::checkpoint
