// The fused projection to queries, keys and values: x[T, H] -> [query heads | key heads | value heads][T, (N + 2G) D].
//
// Tensor ranks share the heads. With fewer key/value heads than ranks, size / G neighbours hold the same one:
//
//   N = 4, G = 2, size 4:   rank 0 | q0 k0 v0 |   rank 1 | q1 k0 v0 |   rank 2 | q2 k1 v1 |   rank 3 | q3 k1 v1 |
//
// [Note: gradients of shared key/value heads] Each holder computes dk and dv from its own query heads only. That is right for
// dx, which is summed over all ranks anyway. The gradients of the weight's key and value rows are partial sums, too, and are
// summed over the holders, so that all of them get the same complete gradient.
//
// H hidden, N query heads, G key/value heads, D head size.
#pragma once

#include "model/linear.h"

namespace trivet::model {

// The heads of a rank.
struct HeadRange {
  int64_t first = 0, count = 0;
  int64_t first_key_value = 0, key_value_count = 0;
  bool key_value_shared = false;  // with a neighbour
};
// Returns all heads if `axis` is null. Throws std::logic_error for sizes that check_tensor_size (model/model.h) refuses.
HeadRange head_range(int64_t heads, int64_t key_value_heads, const comm::RankAxis* axis);

class QkvProjection : public Linear {
 public:
  struct Options {
    int64_t hidden = 0, heads = 0, key_value_heads = 0, head_size = 0;
    bool bias = true;
    double init_deviation = 0.02;
    Adapters::Options adapters = {};  // not if neighbours hold the same key/value head
  };
  explicit QkvProjection(const Options& options);

 private:
  void make_weight_gradients(Context&, Gradients, ConstTensorView x, ConstTensorView dy, const Saved&) const override;
  void sum_over_holders(Context&, const comm::RankAxis&, const HeadRange&, TensorView rows) const;

  Options options_;
};

}  // namespace trivet::model
