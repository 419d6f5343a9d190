// Self-attention, causal or not, with grouped queries: one fused projection to queries, keys and values, the attention core,
// and an output projection.
//
//   x[B, S, H] --qkv--> [B, S, (N + 2G) D] (--norm-->) (--rotary-->)
//              --softmax(q k^T / sqrt(D)) v--> [B, S, N D] --out--> y[B, S, H]
//
// With selective recomputation (Korthikanti et al. 2022; Context::recompute_attention) forward keeps qkv but not the core's
// results, and backward runs the core again. It gives the same bits: the core's random draws and results depend only on qkv and
// on the place in the model.
//
// B sequences, S tokens per sequence, H hidden, N query heads, G key/value heads (G divides N), D head size.
//
// Tensor ranks share the heads: each has N / size query heads and their key/value heads. With more ranks than key/value heads,
// neighbours hold the same one (model/qkv_projection.h).
//
// Context ranks share the tokens of a sequence. For the core, they exchange them for heads (model/head_exchange.h): after the
// norm of queries and keys and before rotary, so that both rotary and the core see whole sequences. N and G above are then
// those of the core's heads, N / t / c on each of c context and t tensor ranks. Or they gather keys and values instead
// (model/gathered_attention.h), or hand them on (model/ring_attention.h), and the layer keeps qkv, before rotary, and the
// core's results of a rank's own tokens only. Or they do both (comm/rank_axis.h): neighbours exchange tokens for heads, and
// then hand on keys and values of the tokens and heads that each has; S / c above is then what a run of neighbours shares.
//
// Multi-head latent attention has other projections (model/latent_qkv.h), each head its own key and value (G = N). The core
// computes values that are narrower than a head as ones that end with zeros, which the output projection does not get.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/head_exchange.h"
#include "model/latent_qkv.h"
#include "model/linear.h"
#include "model/qkv_projection.h"
#include "model/ring_attention.h"
#include "model/rotary_scaling.h"
#include "model/sub_layers.h"

namespace trivet::model {

class Attention : public Layer {
 public:
  struct Options {
    int64_t hidden = 0, heads = 0, key_value_heads = 0;
    int64_t head_size = 0;   // 0: hidden / heads
    bool bias = true;        // for both projections
    bool qkv_bias = false;   // for the first one, even without `bias`
    bool out_bias = false;   // for the second one, even without `bias`
    double dropout = 0;      // on the probabilities
    bool causal = true;      // a token sees itself and those before it; otherwise all of its sequence
    int64_t window = 0;      // tokens that a token sees at most, itself among them; 0: all that causality leaves
    double rotary_base = 0;  // 0: no rotation (positions come from the embedding)
    int64_t rotated = 0;     // elements of a head; 0: all
    RotaryScaling rotary_scaling;
    double query_growth = 0;      // multiplies queries by more at later positions (kernels/attention.h, Rotary); 0: not
    int64_t query_step = 1;       // positions that have the same factor
    double score_scale = 0;       // scales scores; 0: 1 / sqrt(D)
    double soft_cap = 0;          // caps scores (kernels/attention.h); 0: none
    bool sinks = false;           // one for each head (kernels/attention.h, AttentionSinks)
    bool qk_norm = false;         // queries and keys are normalized, head by head (model/qk_norm.h),
    bool whole_norm = false;      // or all heads of a token together (model/projection_norm.h)
    double norm_epsilon = 1e-5;   // for this norm
    LatentAttention latent = {};  // queries, keys and values come from latents
    double init_deviation = 0.02, init_deviation_out = 0.02;
    Adapters::Options qkv_adapters = {}, out_adapters = {};
    LatentAdapters latent_adapters = {};
  };
  // `name` is the layer's full name in the model: it identifies its random draws.
  Attention(std::string name, const Options& options);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  enum Slot {
    kQkv,
    kOut,
    kLogSumExp,
    kDqkv,
    kProjected,
    kDprojected,
    kOwnOut,
    kValues,
    kDsinks
  };  // the places of Saved that this layer uses

  // The core's results.
  struct Core {
    Intermediate out, log_sum_exp;        // [B, S, N D], [B, N, S]
    std::optional<Intermediate> own_out;  // all heads of own tokens, if ranks exchange heads
    std::optional<Intermediate> values;   // the same without zeros, if values are narrower than heads
    TensorView projected() const { return values ? values->view() : own_out ? own_out->view() : out.view(); }
  };
  // Heads of the projections, and of the core.
  HeadRange heads_of(const Context& context) const;
  HeadRange core_heads_of(const Context& context) const;
  Shape own_shape(const Context& context, const Shape& x) const;  // [B, S / c, (N + 2G) D] of the projections
  Core run_core(Context& context, Weights weights, ConstTensorView qkv, Saved* keeper_of_out,
                Saved* keeper_of_statistics) const;
  // The sinks of the core's heads.
  ConstTensorView sinks_of_core(const Context& context, Weights weights) const;
  void make_sink_gradients(const BackwardPass& pass, ConstTensorView dout, ConstTensorView out, ConstTensorView log_sum_exp,
                           TensorView dsinks) const;
  void sum_sink_gradients(Context& context, Gradients gradients, ConstTensorView dsinks) const;
  void run_core_forward(Context& context, const OwnTensors& own) const;
  Core core_again(const BackwardPass& pass) const;
  void run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  int64_t head_size() const { return options_.head_size; }
  int64_t value_size() const { return options_.latent.value_size_of(head_size()); }
  bool narrow_values() const { return value_size() < head_size(); }
  void gradient_of_core(const BackwardPass& pass, ConstTensorView dy, TensorView dout) const;
  void make_qkv(Context& context, Weights weights, ConstTensorView x, TensorView qkv, Saved& saved) const;
  void through_qkv(const BackwardPass& pass, ConstTensorView dqkv, TensorView dx) const;
  std::array<Heads, 3> segments_of_qkv(const Context& context) const;
  void run_core_backward(const BackwardPass& pass, const Core* again, ConstTensorView dout, TensorView dqkv) const;
  void rotate(Context& context, TensorView qkv, bool backward) const;
  kernels::Rotary rotary(const Context& context, int64_t tokens) const;
  kernels::Attention core_call(const Context& context, int64_t tokens) const;
  CoreOptions core_options(const Context& context, int64_t tokens) const;
  kernels::DropoutSite dropout(const Context& context, int64_t sequence) const;

  Options options_;
  // Rotary frequencies, for sequences up to the original length of their scaling and longer ones; empty: no rotation.
  std::vector<double> frequencies_, long_frequencies_;
  std::string dropout_name_;
  std::unique_ptr<Layer> qkv_;
  Linear out_;
  std::unique_ptr<Layer> qk_norm_;  // null: none
  SubLayers sub_layers_;
  int qkv_index_, out_index_, qk_norm_index_ = -1;
  size_t sinks_ = 0;  // their place among the parameters, if there are any
};

}  // namespace trivet::model
