// Which part of a split parameter a tensor rank holds. Arithmetic only.
//
//   qkv [(4 + 2 + 2) D, H], segments {4 D, 2 D, 2 D}, units {4, 2, 2}, size 2:
//   whole   | q0 q1 q2 q3 | k0 k1 | v0 v1 |
//   rank 0  | q0 q1 | k0 | v0 |              three boxes of the whole, one after another in the rank's memory
//
// Unit u of U belongs to rank r when u is in [floor(U r / n), floor(U (r + 1) / n)): parts of uneven lengths differ by at most
// one unit, and nothing is padded. With fewer units than ranks (U divides n, dim 0) rank r holds unit floor(U r / n), as some
// of its neighbours do; the first of them is the one that counts it. Without units there is nothing to share, and along dim 1 a
// sum over ranks would count what is shared twice.
#pragma once

#include <vector>

#include "core/parameter_spec.h"

namespace trivet::tensor_parallel {

// A box of the whole parameter that lies row-major in one piece in the rank's part.
struct LocalBox {
  Shape start, shape;   // in the whole parameter
  int64_t first = 0;    // its first element in the rank's part
  bool counted = true;  // this rank saves it and counts it in norms; false: a neighbour that holds it too does
};

struct LocalPart {
  Shape shape;
  std::vector<LocalBox> boxes;  // disjoint; together the rank's part
};

// Throws std::logic_error when the split does not fit the shape; ConfigError when it cannot be divided among `size` ranks.
LocalPart local_part(const ParameterSpec& parameter, int rank, int size);

// [begin, end) of `units` that rank `rank` of `size` holds.
struct UnitRange {
  int64_t begin = 0, end = 0;
  bool counted = true;
  int64_t count() const { return end - begin; }
};
UnitRange unit_range(int64_t units, int rank, int size);
// Whether every rank of `size` gets a part; `may_share`: fewer units than ranks will do where they divide them.
bool can_divide(int64_t units, int size, bool may_share);

}  // namespace trivet::tensor_parallel
