// Adds the product of two narrow matrices, as a low-rank adapter has them, to a part of a larger one.
#pragma once

#include <cstdint>
#include <span>

#include "engine/checkpoint/piece.h"

namespace trivet::hugging_face {

// scale x B A, with A[rank, columns] and B[rows, rank]. Its rows are rows [first_row, first_row + rows) of the larger matrix,
// and its columns are all columns of it. Several such matrices may follow one another: A[matrices x rank, columns], and each
// has an equal part of the rows.
struct LowRankProduct {
  std::span<const float> a, b;
  int64_t rank = 0, rows = 0, first_row = 0;
  double scale = 1;
  int64_t matrices = 1;
};

// `piece`: float32, of a matrix. Sums over the rank are in double, so each element is rounded once.
void add_low_rank(const checkpoint::Piece& piece, const LowRankProduct& product);

}  // namespace trivet::hugging_face
