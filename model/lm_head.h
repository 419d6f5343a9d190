// The last layer: final norm, projection to the vocabulary, cross-entropy of the microbatch's targets.
//
//   x[B, S, H] --norm--> h[T, H] --h W^T--> logits[R, V] --softmax cross-entropy--> loss        R rows of T at a time
//
// T = B S rows, H hidden, V vocabulary, R rows of a chunk. W[V, H] is the head's own or the embedding's table (tied). With a
// scaling, h is what the norm gives divided by it, and so the logits are.
//
// [Note: logits in chunks] The logits of all rows would be the largest tensor of the model by far, so they are computed, used
// and released R rows at a time. R depends only on V and on the rows of a microbatch, so that no other setting can change R and
// with it a gradient's bits.
//   forward_backward computes each chunk of logits once; training uses this.
//   forward alone computes just the loss (evaluation).
//   backward_input computes the logits again and has to keep their whole gradient [T, V] for backward_weight, which gets no
//   weights.
// The loss is added to context.loss. The gradient is that of gradient_scale * (this microbatch's sum of losses): only the
// caller knows how many targets of the whole step count in the mean.
//
// [Note: pairs of answers] With a preference rule the loss is not a sum over rows: it compares pairs of rows of the microbatch,
// or pairs of documents in them (kernels/preference.h), and what it makes of a row's gradient is known only when the
// log-probabilities of both answers are. So the logits of all chunks are computed twice: for the log-probabilities, and for the
// gradients, which are those of cross-entropy times a factor for each row. Evaluations need the first pass alone.
//
// Tensor ranks share W's rows (the vocabulary). Each computes its columns of the logits and gets the softmax of the rows from a
// maximum and two sums over ranks. h, the loss and, after a sum over ranks, the gradient of h are whole on every rank.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/embedding.h"
#include "kernels/interface.h"
#include "kernels/preference_rule.h"
#include "model/gives_logits.h"
#include "model/norm.h"
#include "model/row_chunks.h"
#include "model/sub_layers.h"

namespace trivet::model {

class LmHead : public Layer, public GivesLogits {
 public:
  struct Options {
    int64_t vocabulary = 0, hidden = 0;
    double init_deviation = 0.02;
    std::string tied_to;        // full name of the table that serves as W; empty: W is the head's own
    int64_t rows_of_chunk = 0;  // 0: chosen from the vocabulary and the rows
    bool frozen = false;        // nothing is trained
    double scaling = 1;         // logits are divided by it
    double soft_cap = 0;        // caps logits: they become soft_cap tanh(logit / soft_cap); 0: none
    std::optional<kernels::PreferenceRule> preference = {};  // none: the loss is the cross-entropy of all targets
  };
  LmHead(const Options& options, std::unique_ptr<Norm> norm);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape&) const override { return {0}; }  // absent: the loss is the output
  LayerRole role() const override { return LayerRole::Loss; }
  std::string_view type() const override { return "lm_head"; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void forward_backward(Context&, Weights, Gradients, ConstTensorView x, TensorView dx, Saved&) const override;

  void logits(Context&, Weights, ConstTensorView x, TensorView logits) const override;

  int64_t rows_of_chunk(int64_t rows) const;  // for a microbatch of so many rows

 private:
  enum Slot { kHidden, kDlogits, kDhidden };  // the places of Saved that this layer uses

  // Runs work(context, chunk, weight gradient, loss) for each chunk of logits. The gradient and the loss may be absent.
  template <typename Work>
  void sum_chunks(Context& context, int64_t rows, const Gradient& weight, TensorView loss, const Work& work) const;
  static ConstTensorView factors_of(const ScopedTensor& factors, const RowChunk& chunk);  // absent if `factors` is empty
  kernels::TableRows columns_of(const Context&) const;
  void show_logits(Context&, ConstTensorView h, ConstTensorView weight) const;
  void cap(Context&, TensorView logits) const;
  void divide(Context&, TensorView h) const;  // by `scaling`; also the gradient of h
  void logits_of_rows(Context&, ConstTensorView h, ConstTensorView weight, TensorView logits) const;
  void logits_of_all_parts(Context&, ConstTensorView h, ConstTensorView weight, TensorView logits) const;
  // The requested results of the two functions below.
  struct Wanted {
    TensorView loss, dlogits, row_losses;  // each may be absent
    Number gradient_scale = 1.0;
    ConstTensorView row_factors;  // absent: 1
  };
  void loss_of_logits(Context&, ConstTensorView logits, ConstTensorView targets, const Wanted& wanted) const;
  void loss_of_rows(Context&, ConstTensorView h, ConstTensorView weight, ConstTensorView targets, const Wanted& wanted) const;
  // DPO: fills the statistics that the context wants, and returns a factor for the gradient of each row.
  ScopedTensor compare_answers(Context&, ConstTensorView h, ConstTensorView weight, bool reports) const;
  const Split& split() const { return sub_layers_.parameters()[weight_].split; }
  void make_input_gradient(Context&, ConstTensorView weight, ConstTensorView dlogits, TensorView dh) const;
  void add_weight_gradient(Context&, const Gradient& weight, ConstTensorView dlogits, ConstTensorView h) const;

  int64_t vocabulary_, rows_of_chunk_;
  double scaling_, soft_cap_;
  std::optional<kernels::PreferenceRule> preference_;
  std::unique_ptr<Norm> norm_;
  SubLayers sub_layers_;
  int norm_index_;
  size_t weight_;  // index of W among the parameters
};

}  // namespace trivet::model
