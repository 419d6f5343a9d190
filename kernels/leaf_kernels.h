// Kernels whose results do not depend on how many context ranks share the tokens of a microbatch.
//
// Each sequence is cut into equal leaves; a rank has consecutive ones, so its rows are those of its leaves:
//
//   2 sequences of 4 tokens, 4 leaves      one rank has the rows   0 1 2 3 | 4 5 6 7      leaf 0: rows 0 4, leaf 1: rows 1 5
//   ...
//                                          the second of two has   2 3 | 6 7              leaves 2, 3
//
// A sum over all rows (gradients of weights, biases, gains and tables) is computed leaf by leaf, and the leaves are added in a
// balanced tree, which a TreeSum over the ranks completes. A product of all rows is computed in pieces of as many rows as a
// leaf has, so that the number of rows that a product has is the same for all. Calls with other numbers of rows are passed on.
#pragma once

#include <vector>

#include "core/arena.h"
#include "core/layer.h"
#include "kernels/interface.h"
#include "kernels/products.h"

namespace trivet::kernels {

class LeafKernels final : public Kernels {
 public:
  // `leaves`: that a rank has, a power of two. `arena` is for sums in progress. Both references must outlive this object.
  LeafKernels(Kernels& inner, Arena& arena, int leaves) : inner_(inner), arena_(arena), leaves_(leaves) {}

  // The shape of this context rank's part of the microbatch, whose tokens the leaves must divide: else std::logic_error. Each
  // of `tensor_ranks` has its own tokens of that between blocks, and an equal power of two of the leaves.
  void set_rows(int64_t batch, int64_t tokens, int tensor_ranks = 1);
  const TokenLeaves& leaves() const { return all_.leaves; }

  Device device() const override { return inner_.device(); }
  Counters counters() const override { return inner_.counters(); }
  void run(const KernelArguments& arguments) override;
  void from_host(ConstTensorView from, TensorView out) override { inner_.from_host(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { inner_.to_host(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { inner_.copy_pinned(from, out); }

 private:
  struct Rows {
    int64_t count = 0;
    TokenLeaves leaves;
    std::vector<int64_t> piece_ends;
  };
  Rows rows_of(int64_t batch, int64_t tokens, int leaves) const;
  // Null: the tensor has another number of rows.
  const Rows* find(ConstTensorView tensor) const;
  void run_product(const Matmul& product, const Rows& rows);
  // Runs `sum(range, out, accumulate)` for the ranges of each leaf; out (+)= the sum of the leaves.
  template <typename Sum>
  void sum_leaves(const Rows& rows, TensorView out, bool accumulate, const Sum& sum);

  Kernels& inner_;
  Arena& arena_;
  int leaves_;
  Rows all_{0, {inner_, {}}, {}}, own_{0, {inner_, {}}, {}};
};

}  // namespace trivet::kernels
