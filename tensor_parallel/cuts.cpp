#include "tensor_parallel/cuts.h"

#include <algorithm>
#include <stdexcept>

namespace trivet::tensor_parallel {

bool can_cut(const Split& split, int size) {
  if (kSumChunks % size != 0) return false;
  const std::vector<int64_t>& units = split.units.empty() ? split.segments : split.units;
  return std::all_of(units.begin(), units.end(), [&](int64_t count) { return count >= size; });
}

SplitCuts cuts_of(const Split& split, int rank, int size) {
  if (!can_cut(split, size)) throw std::logic_error("tensor_parallel: a split cannot be cut into fixed chunks");
  const int per_rank = kSumChunks / size, first_chunk = rank * per_rank;
  SplitCuts cuts;
  cuts.sums.leaves.resize(per_rank);
  int64_t end = 0;
  for (size_t segment = 0; segment < split.segments.size(); ++segment) {
    const int64_t units = split.units.empty() ? split.segments[segment] : split.units[segment];
    const int64_t unit = split.segments[segment] / units;
    for (int chunk = first_chunk; chunk < first_chunk + per_rank; ++chunk) {
      const int64_t begin = end;
      end += (units * (chunk + 1) / kSumChunks - units * chunk / kSumChunks) * unit;
      cuts.ends.push_back(end);
      cuts.sums.leaves[chunk - first_chunk].push_back({begin, end});
    }
  }
  cuts.rows.row_ends = cuts.cols.col_ends = cuts.ends;
  return cuts;
}

}  // namespace trivet::tensor_parallel
