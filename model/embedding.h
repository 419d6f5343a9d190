// The first layer: tokens[B, S] (int32) -> y[B, S, H] = dropout(scale * (table[token] + positions[s])), where s is the place in
// the sequence, or in the document if samples are several (Microbatch::positions).
//
// GPT-2 has learned positions; Llama rotates queries and keys instead. The table may also be the LM head's weight (tied).
//
// Tensor ranks share the table's rows (the vocabulary): a rank writes zeros for tokens whose row is on another rank, and y is
// the sum over ranks. All but one of the terms of a token are zeros, so the sum has the same bits as with the whole table.
#pragma once

#include <string>
#include <vector>

#include "core/layer.h"
#include "kernels/kernels.h"

namespace trivet::model {

class Embedding : public Layer {
 public:
  struct Options {
    int64_t vocabulary = 0, hidden = 0;
    int64_t positions = 0;  // the longest sequence; 0: no learned positions
    double scale = 1;       // multiplies the sum of both
    double dropout = 0;
    double init_deviation = 0.02;
    bool frozen = false;  // nothing is trained
  };
  static constexpr const char* kTable = "tokens.weight";

  // `name` is the layer's full name in the model: it identifies its random draws.
  Embedding(const std::string& name, const Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& tokens) const override { return {tokens[0], tokens[1], options_.hidden}; }
  LayerRole role() const override { return LayerRole::Input; }
  std::string_view type() const override { return "embedding"; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView tokens, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  enum Slot { kTokens, kDsum };  // the places of Saved that this layer uses

  void add_position_gradient(Context&, const Gradient&, ConstTensorView tokens, ConstTensorView dy) const;
  kernels::TableRows rows_of(const Context& context) const;

  Options options_;
  std::string dropout_name_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trivet::model
