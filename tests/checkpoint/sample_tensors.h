// Tensors with known values, cut into pieces for any layout.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/random.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace trivet::support {

using checkpoint::Piece;

// The state of a run that has done `step` steps, none of which was skipped.
inline std::string sample_state(int64_t step) { return checkpoint::to_text({.steps = step, .updates = step}); }

// Clears a bit of each element's exponent, so that all numbers are finite: checkpoints with others are not saved.
inline void make_finite(std::vector<std::byte>& data, DType dtype) {
  if (!is_float(dtype)) return;
  for (size_t i = static_cast<size_t>(size_of(dtype)) - 1; i < data.size(); i += static_cast<size_t>(size_of(dtype)))
    data[i] &= std::byte{0xBF};
}

// Every element's bits follow from the tensor's name, the step and the element's place.
inline std::vector<std::byte> expected_bytes(const std::string& name, DType dtype, const Shape& shape, int64_t step) {
  std::vector<std::byte> data(shape.elements() * size_of(dtype));
  const uint64_t key = random_key(static_cast<uint64_t>(step), name);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>((key * (i / 7 + 1) + i * 0x9E3779B97F4A7C15u) >> 56);
  make_finite(data, dtype);
  return data;
}

struct SampleTensor {
  std::string name;
  DType dtype;
  Shape shape;
  int split_dim = -1;  // which tensor parallelism splits; -1: none
};

inline const std::vector<SampleTensor>& sample_tensors() {
  static const std::vector<SampleTensor> tensors{{"embedding", DType::Float32, {24, 5}, 0},
                                                 {"blocks.0.weight", DType::BFloat16, {12, 24}, 1},
                                                 {"blocks.0.cube", DType::Float32, {3, 12, 5}, 1},
                                                 {"blocks.0.norm", DType::Float32, {7}, -1},
                                                 {"blocks.0.large", DType::Float32, {96, 4098}, 1},
                                                 {"step_count", DType::Int64, {}, -1},
                                                 {"empty", DType::Float32, {0, 3}, -1}};
  return tensors;
}

struct Layout {
  int data = 1, tensor = 1;  // ranks; the rank of (d, t) is d * tensor + t
  int size() const { return data * tensor; }
};

// What one rank of a layout owns, with the memory for it.
struct RankPieces {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Piece> pieces;
};

// The box of tensor-parallel rank t, divided evenly among the data ranks. A tensor that is not split belongs to t = 0.
inline Piece sample_piece(const SampleTensor& tensor, const Layout& layout, int rank) {
  const int d = rank / layout.tensor, t = rank % layout.tensor;
  Piece piece = checkpoint::whole_box_piece(tensor.name, tensor.shape, 0, {nullptr, tensor.dtype, {0}});
  if (tensor.split_dim >= 0) {
    piece.box_shape[tensor.split_dim] = tensor.shape[tensor.split_dim] / layout.tensor;
    piece.box_start[tensor.split_dim] = t * piece.box_shape[tensor.split_dim];
  }
  const int64_t elements = tensor.split_dim < 0 && t > 0 ? 0 : piece.box_shape.elements();
  const int64_t share = (elements + layout.data - 1) / layout.data;
  piece.first = std::min(d * share, elements);
  piece.count = std::min(share, elements - piece.first);
  return piece;
}

inline Shape strides_of(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int dim = shape.dims() - 1; dim >= 0; --dim) strides[dim] = stride, stride *= shape[dim];
  return strides;
}

// Copies element by element: the plain reference that common_elements.cpp must agree with.
inline std::vector<std::byte> piece_bytes(const Piece& piece, DType dtype, const std::vector<std::byte>& whole) {
  const auto size = static_cast<size_t>(size_of(dtype));
  const Shape strides = strides_of(piece.shape);
  std::vector<std::byte> data;
  for (int64_t i = piece.first; i < piece.first + piece.count; ++i) {
    int64_t place = 0, left = i;
    for (int dim = piece.shape.dims() - 1; dim >= 0; --dim) {
      place += (piece.box_start[dim] + left % piece.box_shape[dim]) * strides[dim];
      left /= piece.box_shape[dim];
    }
    const auto at = whole.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(place) * size);
    data.insert(data.end(), at, at + static_cast<std::ptrdiff_t>(size));
  }
  return data;
}

// With `filled` the memory holds the expected values of `step`, otherwise 0xEE.
inline RankPieces make_pieces(const Layout& layout, int rank, int64_t step, bool filled,
                              const std::vector<SampleTensor>& tensors = sample_tensors()) {
  RankPieces result;
  for (const SampleTensor& tensor : tensors) {
    Piece piece = sample_piece(tensor, layout, rank);
    auto bytes = filled ? piece_bytes(piece, tensor.dtype, expected_bytes(tensor.name, tensor.dtype, tensor.shape, step))
                        : std::vector<std::byte>(piece.count * size_of(tensor.dtype), std::byte{0xEE});
    result.memory.push_back(std::move(bytes));
    piece.data = {result.memory.back().data(), tensor.dtype, {piece.count}};
    result.pieces.push_back(piece);
  }
  return result;
}

// Checks that `step`, read by `layout`, holds what make_pieces(..., filled) wrote.
inline void expect_values(const checkpoint::LoadedStep& step, const Layout& layout = {},
                          const std::vector<SampleTensor>& tensors = sample_tensors()) {
  for (int rank = 0; rank < layout.size(); ++rank) {
    const RankPieces expected = make_pieces(layout, rank, step.step(), true, tensors);
    const RankPieces read = make_pieces(layout, rank, step.step(), false, tensors);
    step.read(read.pieces);
    EXPECT_EQ(read.memory, expected.memory) << "rank " << rank;
  }
}

}  // namespace trivet::support
