// Computes which part of a split parameter a tensor rank holds. This is pure arithmetic.
//
//   qkv [(4 + 2 + 2) D, H], segments {4 D, 2 D, 2 D}, units {4, 2, 2}, size 2:
//   whole   | q0 q1 q2 q3 | k0 k1 | v0 v1 |
//   rank 0  | q0 q1 | k0 | v0 |              three boxes of the whole, one after another in the rank's memory
//
// Unit u of U belongs to rank r of n if u is in [floor(U r / n), floor(U (r + 1) / n)). The lengths of parts differ by at most
// one unit, and nothing is padded. With fewer units than ranks (U divides n, dim 0) rank r holds unit floor(U r / n), and so do
// some of its neighbours; only the first of them counts it. A split without units cannot be shared in this way, and neither can
// one along dim 1, where a sum over ranks would count a shared unit twice.
#pragma once

#include <vector>

#include "core/parameter_spec.h"

namespace trivet::tensor_parallel {

// A box of the whole parameter, which the rank's part stores as one contiguous row-major piece.
struct LocalBox {
  Shape start, shape;   // in the whole parameter
  int64_t first = 0;    // its first element in the rank's part
  bool counted = true;  // this rank saves it and counts it in norms; false: a neighbour that also holds it does
};

struct LocalPart {
  Shape shape;
  std::vector<LocalBox> boxes;  // disjoint; together they form the rank's part
};

// Throws std::logic_error when the split does not fit the shape; ConfigError when it cannot be divided among `size` ranks.
LocalPart local_part(const ParameterSpec& parameter, int rank, int size);

// The range [begin, end) of `units` that rank `rank` of `size` holds.
struct UnitRange {
  int64_t begin = 0, end = 0;
  bool counted = true;
  int64_t count() const { return end - begin; }
};
UnitRange unit_range(int64_t units, int rank, int size);
// Returns whether each of `size` ranks gets a part. `may_share`: fewer units than ranks are accepted if they divide `size`.
bool can_divide(int64_t units, int size, bool may_share);

}  // namespace trivet::tensor_parallel
