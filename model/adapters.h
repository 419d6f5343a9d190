// Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) of a linear layer, or of parts of a fused one:
//
//   y[T, out] += scale (x[T, in] A^T) B^T          A[r, in], B[out of the part, r]
//
// A starts uniform in +-1 / sqrt(in) and B as zeros, as in PEFT, so that a new adapter changes nothing. The parameters of part
// "query" are "query.lora_a" and "query.lora_b"; those of the whole layer are "lora_a" and "lora_b".
//
// All p parts of a layer are computed together. `low` = x A^T has p r columns, r of each part. `up` makes y of it: the
// transposes of all B, with zeros where a part of y has no adapter:
//
//             query   key   value                          the same products serve one part and several; r is so small that
//   up   r | B0^T   |  0  |   0   |     low[T, p r] up     the products with zeros do not matter
//        r |   0    |  0  | B2^T  |
//
// Tensor ranks share A and B as they share the layer's weight W:
//   W split along dim 0   A is whole and B split; the gradient of `low` is a sum over ranks
//   W split along dim 1   A is split and B whole; `low` is a sum over ranks
// With sequence parallelism the tensors that are whole hold a rank's own tokens, as those of the linear layer do.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/layer.h"

namespace trivet::model {

// Checks whether a parameter with this name, with or without the names of its layers, belongs to an adapter.
bool is_adapter(std::string_view parameter_name);

class Adapters {
 public:
  struct Part {
    std::string name;  // empty: the whole layer
    int segment = -1;  // segment of W's split along dim 0; -1: the whole layer
  };
  struct Options {
    int64_t rank = 0;
    double scale = 1;
    std::vector<Part> parts;  // none: the layer has no adapters
  };
  // `weight`: W[out, in] of the linear layer.
  Adapters(const Options& options, const ParameterSpec& weight);

  bool empty() const { return options_.parts.empty(); }
  std::span<const ParameterSpec> parameters() const { return parameters_; }  // A and B of each part

  // Makes what forward keeps, `low`, which has the rows of y.
  TensorView keep_low(Context&, Weights, ConstTensorView x, Shape y, Saved&) const;
  // Adds to y. x has all tokens if W is split along dim 0.
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const;
  // Adds to dx, unless it is absent. dy has all tokens if W is split along dim 1; `x` is the shape of the layer's input.
  void backward_input(Context&, Weights, ConstTensorView dy, const Shape& x, TensorView dx, Saved&) const;
  // x and dy are those of the linear layer: with sequence parallelism, its own tokens of what is not split.
  void backward_weight(Context&, Gradients, ConstTensorView x, ConstTensorView dy, const Saved&) const;

 private:
  enum Slot { kLow, kDlow };  // the places of Saved that the adapters use

  struct Rows {
    int64_t first = 0, count = 0;
  };
  bool column_parallel() const { return weight_.split.dim == 0; }
  bool row_parallel() const { return weight_.split.dim == 1; }
  int64_t width() const { return options_.rank * static_cast<int64_t>(options_.parts.size()); }  // p r
  Rows rows_of(const Context&, const Part& part) const;
  int64_t local_out(const Context&) const;
  ScopedTensor make_up(Context&, Weights) const;
  ScopedTensor copy_of_downs(Context&, Weights) const;
  void add_up_gradients(Context&, Gradients, ConstTensorView dy, const Saved&) const;
  void add_down_gradients(Context&, Gradients, ConstTensorView x, const Saved&) const;

  Options options_;
  ParameterSpec weight_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trivet::model
