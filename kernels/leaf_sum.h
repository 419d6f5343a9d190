// Sums of leaves in a balanced tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), as ReduceOp::TreeSum adds ranks: if the ranks
// of a group have consecutive leaves, an equal power of two each, TreeSum over them completes the tree.
#pragma once

#include <vector>

#include "core/arena.h"
#include "kernels/interface.h"

namespace trivet::kernels {

// Needs memory for as many leaves as the tree has levels.
class LeafSum {
 public:
  LeafSum(Kernels& kernels, Arena& arena, DType dtype, const Shape& shape)
      : kernels_(kernels), arena_(arena), dtype_(dtype), shape_(shape) {}

  // Returns memory for the next leaf, whose value is to be written there before end_leaf().
  TensorView begin_leaf();
  void end_leaf();
  // out (+)= the sum. The number of leaves must be a power of two; otherwise std::logic_error.
  void store(TensorView out, bool accumulate);

 private:
  struct Partial {
    ScopedTensor sum;
    int level = 0;
  };

  Kernels& kernels_;
  Arena& arena_;
  DType dtype_;
  Shape shape_;
  std::vector<Partial> partials_;  // their levels fall
};

}  // namespace trivet::kernels
