// A mixture of experts in place of a block's MLP (Shazeer et al. 2017): each token is computed by K of E MLPs, which a router
// chooses for it, and by a shared one if there is one (DeepSeek-AI 2024).
//
//   x[T, H] --router--> logits[T, E] --choose--> K experts and weights for each token     (kernels/experts.h)
//   rows of experts [T K, H] --gate_up--> [T K, 2F] --weight silu(gate) up--> [T K, F] --down--> [T K, H]
//   y[T, H] = sum of a token's rows (+ shared MLP of x, or + sigmoid(x . g) of it)
//
// With biases, the router and gate_up have one, and y gets sum over k of weight[t, k] b[expert] for that of down: the product
// W b of all weights [T, E], most of which are 0. So the biases b[E, H] are whole on every rank, and sums over ranks have them
// not in them.
//
// No token is dropped, and memory does not depend on what the router decides: all experts together have T K rows. Logits,
// scores and weights are in float32 whatever the activations' type is. A token's weight is multiplied into F, not into H, so
// that its gradient needs no output of an expert.
//
// Weights of all experts are one tensor each, [E 2F, H] and [E H, F]; expert e has the rows from e 2F (e H) on. Tensor ranks
// share F of every expert, as they do that of an MLP. Ranks with different tokens have all experts, or share them
// (expert_exchange.h). Then nothing of experts' work is kept: backward sends the rows again and computes it again, so that
// memory is that of one microbatch's rows, however many a rank is sent.
//
// [Note: when rows are summed] A token's row is a sum over tensor ranks, and there are K of them. The rows of a token are added
// before that sum, which then has H elements a token and not K H. In layout mode the sum over ranks comes first, because its
// tree has the chunks of F as leaves: the other way round one rank would have to add a token's rows chunk by chunk.
#pragma once

#include <memory>

#include "kernels/experts.h"
#include "model/adapters.h"
#include "model/expert_exchange.h"
#include "model/expert_rows.h"
#include "model/expert_work.h"
#include "model/mlp.h"

namespace trivet::model {

class ExpertMlp : public Layer {
 public:
  struct Options {
    int64_t hidden = 0;
    int64_t experts = 0, chosen = 0;  // E, K
    int64_t feed_forward = 0;         // F
    int64_t shared_feed_forward = 0;  // 0: there is no shared MLP
    bool shared_gate = false;         // g[1, H]: the shared MLP's output has a gate
    kernels::ExpertRule rule;
    kernels::SwiGluRule swiglu;
    bool bias = false;
    bool correction_bias = false;                       // ChooseExperts::bias, a parameter that no gradient changes
    double bias_update_rate = 0;                        // ParameterUpdate::rate of it
    double balance = 0, z_loss = 0;                     // coefficients of losses (kernels/experts.h, ChooseExpertsBackward)
    Adapters::Options gate_up_adapters, down_adapters;  // one for a whole matrix
    Adapters::Options shared_up_adapters, shared_down_adapters;
    double init_deviation = 0.02, init_deviation_out = 0.02;
  };
  explicit ExpertMlp(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_context_parallelism() const override { return true; }
  int64_t experts() const override { return options_.experts; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  // Leaves out what only y needs.
  void forward_again(Context&, Weights, ConstTensorView x, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  // The places of Saved that this layer uses. kWide to kDwide: only if the rank has all experts. kGateLogits to
  // kDshared: of a gate. The last four: of adapters.
  enum Slot {
    kX,
    kLogits,
    kChosen,
    kWeights,
    kOrder,
    kPlaces,
    kEnds,
    kWide,
    kActivated,
    kDwide,
    kDlogits,
    kDy,
    kGateLogits,
    kShared,
    kDgateLogits,
    kDshared,
    kGateUpLow,
    kDownLow,
    kGateUpDlow,
    kDownDlow
  };
  enum Parameter { kRouter, kGateUp, kDown, kRouterBias, kGateUpBias, kDownBias };  // the last three: if there are biases

  ExpertWork work(Context&, Weights) const;
  void choose(Context&, Weights, ConstTensorView x, Saved&) const;
  void activate(Context&, Weights, ConstTensorView x, Saved&) const;
  // The same for ranks that share the experts, with the products that follow it.
  void compute_on_ranks(Context&, const comm::RankAxis&, Weights, ConstTensorView x, const RowSum& sum, const Saved&) const;
  size_t add_adapters(const std::string& prefix, Parameter weight, const Adapters::Options& options);
  template <typename Compute>
  static void add_part(Context&, const RowSum& sum, Compute&& compute);
  // Adds the part of an adapter to the rows of a round, or sends it back by itself.
  static void return_part(ExpertExchange&, int round, const RowSum& sum, ConstTensorView part, TensorView rows);
  // Absent y: only what backward needs.
  void add_shared(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const;
  void apply_gated(Context&, Weights, ConstTensorView x, Saved&) const;
  void run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  void through_experts(const BackwardPass& pass, ConstTensorView dy, TensorView dx, TensorView dweights) const;
  void through_experts_on_ranks(const BackwardPass& pass, const comm::RankAxis&, ConstTensorView dy, TensorView dx,
                                TensorView dweights) const;
  void through_choice(const BackwardPass& pass, ConstTensorView dy, TensorView dweights, TensorView dlogits) const;
  void through_shared(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  void through_gate(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  // Make the gradients of a matrix, its bias and its adapter.
  void make_down_gradients(Context&, Gradients, ConstTensorView dy_rows, ConstTensorView dlow, const Saved&) const;
  void make_gate_up_gradients(Context&, Gradients, ConstTensorView dwide, ConstTensorView dlow, const Saved&) const;
  // W, all weights [T, E] of this rank's tokens, and what belongs to the biases that they multiply.
  ScopedTensor spread_weights(Context&, DType type, const Saved&) const;
  ConstTensorView of_biases(Weights weights, Parameter parameter) const {
    return options_.bias ? weights[parameter] : ConstTensorView{};
  }
  void add_down_biases(Context&, Weights, TensorView y, const Saved&) const;
  void add_gradients_of_weights(const BackwardPass& pass, ConstTensorView dy, TensorView dweights) const;
  void make_bias_gradients(Context&, Gradients, ConstTensorView dlogits, const Saved&) const;
  // The gradient of the router, or of the gate.
  static void make_gradient(Context&, const Gradient&, ConstTensorView dlogits, const Saved&);
  ExpertRows own_rows(const Context&, ConstTensorView x_rows, const Saved&) const;
  // The most rows of a rank's tokens that one of the ranks may have to compute.
  int64_t most_rows(int64_t tokens, int ranks) const;

  Options options_;
  std::unique_ptr<Mlp> shared_;
  SubLayers sub_layers_;
  LowMemory::Ranks ranks_;                         // ranks of the adapters; 0: there is none
  size_t bias_ = 0, gate_ = 0;                     // places among the parameters, if there are such
  size_t gate_up_adapter_ = 0, down_adapter_ = 0;  // the places of A; B follows it
  int shared_index_ = -1;
};

}  // namespace trivet::model
