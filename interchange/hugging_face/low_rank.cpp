#include "interchange/hugging_face/low_rank.h"

#include <algorithm>
#include <vector>

namespace trivet::hugging_face {

void add_low_rank(const checkpoint::Piece& piece, const LowRankProduct& product) {
  const int64_t columns = piece.box_shape[1], whole_columns = piece.shape[1], rank = product.rank;
  std::vector<double> sums;
  for (int64_t done = 0; done < piece.count;) {
    const int64_t element = piece.first + done, column = element % columns;
    const int64_t count = std::min(columns - column, piece.count - done);
    const int64_t row = piece.box_start[0] + element / columns - product.first_row;
    float* const to = piece.data.as<float>() + done;
    done += count;
    if (row < 0 || row >= product.rows) continue;
    sums.assign(static_cast<size_t>(count), 0.0);
    const int64_t first_of_a = row / (product.rows / product.matrices) * rank;
    for (int64_t k = 0; k < rank; ++k) {
      const double factor = product.scale * static_cast<double>(product.b[static_cast<size_t>(row * rank + k)]);
      const float* const from = product.a.data() + (first_of_a + k) * whole_columns + piece.box_start[1] + column;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += factor * static_cast<double>(from[i]);
    }
    for (size_t i = 0; i < sums.size(); ++i) to[i] = static_cast<float>(static_cast<double>(to[i]) + sums[i]);
  }
}

}  // namespace trivet::hugging_face
