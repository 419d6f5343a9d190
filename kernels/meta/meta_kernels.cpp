// The meta kernels compute nothing and touch no memory. They check the arguments as every device does, and count what a call
// would cost.
//
// FLOPs: 2 M N K for a product; 4 S^2 N D B / 2 for causal attention (half of the scores are masked) and 2.5 times that for its
// backward; a few per element for the rest. Bytes: each argument counts once for every time it is read or written.
#include <algorithm>
#include <initializer_list>

#include "kernels/check.h"
#include "kernels/kernels.h"
#include "kernels/workspace.h"

namespace trivet::kernels {
namespace {

double total_bytes(std::initializer_list<ConstTensorView> views) {
  double sum = 0;
  for (const ConstTensorView& view : views) sum += static_cast<double>(view.bytes());
  return sum;
}
// Accumulating also reads the output.
double written(ConstTensorView view, bool accumulate) { return static_cast<double>(view.bytes()) * (accumulate ? 2.0 : 1.0); }

double elements(ConstTensorView view) { return static_cast<double>(view.elements()); }

// A norm reads its x, or computes it as a sum.
template <typename Norm>
double bytes_of_input(const Norm& norm) {
  if (norm.sum.out.absent()) return total_bytes({norm.x});
  return total_bytes({norm.sum.x, norm.sum.residual, norm.sum.out});
}

double attention_flops(ConstTensorView qkv, int64_t heads, int64_t key_value_heads) {
  const double sequence = static_cast<double>(qkv.shape[1]);
  const double head_size = static_cast<double>(qkv.shape[2] / (heads + 2 * key_value_heads));
  return 2 * static_cast<double>(qkv.shape[0]) * sequence * sequence * static_cast<double>(heads) * head_size;
}

class MetaKernels final : public Kernels {
 public:
  Device device() const override { return Device::Meta; }
  Counters counters() const override { return counters_; }

  void matmul(const Matmul& a) override {
    admit(a);
    const double inner = static_cast<double>(a.a.shape[a.transpose_a ? 0 : 1]);
    count(2 * elements(a.out) * inner + 8 * elements(a.activated) + 14 * elements(a.before_gelu),
          total_bytes({a.a, a.b, a.bias, a.activated, a.before_gelu}) + written(a.out, a.accumulate));
  }
  void add_bias(const AddBias& a) override {
    admit(a);
    count(elements(a.bias.absent() ? a.bias : a.x), total_bytes({a.x, a.bias, a.out}));
  }
  void bias_gradient(const BiasGradient& a) override {
    admit(a);
    count(elements(a.dy), total_bytes({a.dy}) + written(a.dbias, a.accumulate));
  }
  void layer_norm(const LayerNorm& a) override {
    admit(a);
    count(8 * elements(a.x) + 2 * elements(a.sum.x), bytes_of_input(a) + total_bytes({a.gain, a.bias, a.y, a.mean, a.rstd}));
  }
  void layer_norm_backward_input(const LayerNormBackwardInput& a) override {
    admit(a);
    count(12 * elements(a.x), total_bytes({a.dy, a.x, a.gain, a.mean, a.rstd, a.dx, a.residual}));
  }
  void layer_norm_backward_weight(const LayerNormBackwardWeight& a) override {
    admit(a);
    count(5 * elements(a.x),
          total_bytes({a.dy, a.x, a.mean, a.rstd}) + written(a.dgain, a.accumulate_gain) + written(a.dbias, a.accumulate_bias));
  }
  void rms_norm(const RmsNorm& a) override {
    admit(a);
    count(5 * elements(a.x) + 2 * elements(a.sum.x), bytes_of_input(a) + total_bytes({a.gain, a.y, a.rstd}));
  }
  void rms_norm_backward_input(const RmsNormBackwardInput& a) override {
    admit(a);
    count(9 * elements(a.x), total_bytes({a.dy, a.x, a.gain, a.rstd, a.dx, a.residual}));
  }
  void rms_norm_backward_weight(const RmsNormBackwardWeight& a) override {
    admit(a);
    count(3 * elements(a.x), total_bytes({a.dy, a.x, a.rstd}) + written(a.dgain, a.accumulate));
  }
  void dropout_add(const DropoutAdd& a) override {
    admit(a);
    count(2 * elements(a.x), total_bytes({a.x, a.residual, a.out}));
  }
  void dropout_backward(const DropoutBackward& a) override {
    admit(a);
    count(elements(a.dy), total_bytes({a.dy, a.dx}));
  }
  void gelu(const Gelu& a) override {
    admit(a);
    count(8 * elements(a.x), total_bytes({a.x, a.y}));
  }
  void gelu_backward(const GeluBackward& a) override {
    admit(a);
    count(14 * elements(a.x), total_bytes({a.dy, a.x, a.dx}));
  }
  void swiglu(const SwiGlu& a) override {
    admit(a);
    count(4 * elements(a.y), total_bytes({a.gate_up, a.y}));
  }
  void swiglu_backward(const SwiGluBackward& a) override {
    admit(a);
    count(10 * elements(a.dy), total_bytes({a.dy, a.gate_up, a.dgate_up}));
  }
  void rotary(const Rotary& a) override {
    admit(a);
    const double share =
        static_cast<double>(a.heads + a.key_value_heads) / static_cast<double>(a.heads + 2 * a.key_value_heads);
    count(3 * share * elements(a.qkv), 2 * share * total_bytes({a.qkv}));
  }
  void attention(const Attention& a) override {
    admit(a);
    count(attention_flops(a.qkv, a.heads, a.key_value_heads), total_bytes({a.qkv, a.out, a.log_sum_exp}));
  }
  void attention_backward(const AttentionBackward& a) override {
    admit(a);
    count(2.5 * attention_flops(a.qkv, a.heads, a.key_value_heads), total_bytes({a.dout, a.qkv, a.out, a.log_sum_exp, a.dqkv}));
  }
  void embedding(const Embedding& a) override {
    admit(a);
    const bool positions = !a.positions.absent();
    count(positions ? elements(a.out) : 0, total_bytes({a.tokens, a.out}) + written(a.out, positions));
  }
  void embedding_backward(const EmbeddingBackward& a) override {
    admit(a);
    const double uses = (a.dtable.absent() ? 0 : 1) + (a.dpositions.absent() ? 0 : 1);
    count(uses * elements(a.dy), total_bytes({a.tokens}) + 3 * uses * total_bytes({a.dy}));
  }
  void cross_entropy(const CrossEntropy& a) override {
    admit(a);
    count(6 * elements(a.logits), total_bytes({a.logits, a.targets, a.dlogits}));
  }
  void row_maxima(const RowMaxima& a) override {
    admit(a);
    count(elements(a.logits), total_bytes({a.logits, a.maximum}));
  }
  void row_sums(const RowSums& a) override {
    admit(a);
    count(3 * elements(a.logits), total_bytes({a.logits, a.targets, a.maximum, a.sums}));
  }
  void cross_entropy_of_part(const CrossEntropyOfPart& a) override {
    admit(a);
    count(3 * elements(a.dlogits), total_bytes({a.targets, a.maximum, a.sums, a.dlogits}) + total_bytes({a.dlogits}));
  }

  void sum_losses(const SumLosses& a) override {
    admit(a);
    count(elements(a.losses), total_bytes({a.losses}) + written(a.words, true));
  }

  void judge_gradients(const JudgeGradients& a) override {
    admit(a);
    count(0, total_bytes({a.square_sum, a.losses, a.verdict}));
  }
  void adam(std::span<const Adam> updates) override {
    double flops = 0, bytes = 0;
    for (const Adam& a : updates) {
      admit(a);
      flops += 15 * elements(a.master);
      bytes += total_bytes({a.gradient, a.copy_out}) + 2 * total_bytes({a.master, a.moment1, a.moment2});
    }
    count(flops, bytes);
  }
  void sgd(const Sgd& a) override {
    admit(a);
    count(6 * elements(a.master), total_bytes({a.gradient, a.copy_out}) + 2 * total_bytes({a.master, a.momentum_buffer}));
  }
  void lion(const Lion& a) override {
    admit(a);
    count(10 * elements(a.master), total_bytes({a.gradient, a.copy_out}) + 2 * total_bytes({a.master, a.moment}));
  }
  void adagrad(const Adagrad& a) override {
    admit(a);
    count(9 * elements(a.master), total_bytes({a.gradient, a.copy_out}) + 2 * total_bytes({a.master, a.sum_of_squares}));
  }
  void lamb_update(const LambUpdate& a) override {
    admit(a);
    count(14 * elements(a.master), total_bytes({a.gradient, a.master, a.update}) + 2 * total_bytes({a.moment1, a.moment2}));
  }
  void apply_update(const ApplyUpdate& a) override {
    admit(a);
    count(3 * elements(a.master), total_bytes({a.update, a.copy_out}) + 2 * total_bytes({a.master}));
  }
  void momentum_update(const MomentumUpdate& a) override {
    admit(a);
    count(5 * elements(a.gradient), total_bytes({a.gradient, a.out}) + 2 * total_bytes({a.momentum_buffer}));
  }

  void zero(TensorView out) override { count(0, total_bytes({out})); }
  void copy(ConstTensorView from, TensorView out) override {
    check_copy(from, out);
    count(0, total_bytes({from, out}));
  }
  void add(ConstTensorView from, TensorView out) override {
    check_add(from, out);
    count(elements(out), total_bytes({from}) + written(out, true));
  }
  void scale(TensorView out, double) override {
    check_float("scale", out);
    count(elements(out), written(out, true));
  }
  void initialize(TensorView out, const Init&, uint64_t, int64_t) override {
    check_float("initialize", out);
    count(0, total_bytes({out}));
  }
  void sum_of_squares(std::span<const Squares> terms, TensorView sum) override {
    double flops = 0, bytes = 0;
    for (const Squares& term : terms) {
      check(term, sum);
      flops += 2 * elements(term.x);
      bytes += total_bytes({term.x});
    }
    count(flops, bytes);
  }
  void divide_by_norm(TensorView out, ConstTensorView square_sum, double) override {
    check_sum_of_squares(out, square_sum);
    count(elements(out), written(out, true));
  }
  void fixed_point_add(ConstTensorView x, Number, double, TensorView sum, TensorView refused) override {
    check_fixed_point("fixed_point_add", x, sum);
    check_refused("fixed_point_add", refused);
    count(2 * elements(x), total_bytes({x}) + written(sum, true));
  }
  void fixed_point_store(ConstTensorView x, Number, double, TensorView sum, TensorView refused) override {
    check_fixed_point("fixed_point_store", x, sum);
    check_refused("fixed_point_store", refused);
    count(elements(x), total_bytes({x}) + written(sum, false));
  }
  void fixed_point_read(ConstTensorView sum, TensorView out) override {
    check_fixed_point("fixed_point_read", out, sum);
    count(elements(out), total_bytes({sum, out}));
  }
  void fixed_point_round(ConstTensorView x, Number, double, TensorView out, TensorView refused) override {
    check_fixed_point_round(x, out);
    check_refused("fixed_point_round", refused);
    count(elements(x), total_bytes({x, out}));
  }
  void quantize(const Quantize& a) override {
    admit(a);
    count(3 * elements(a.x), total_bytes({a.x, a.values, a.scales}));
  }
  void dequantize(const Dequantize& a) override {
    admit(a);
    count(elements(a.out), total_bytes({a.values, a.scales}) + written(a.out, a.accumulate));
  }
  void from_host(ConstTensorView from, TensorView out) override { check_host_copy(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { check_host_copy(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { check_host_copy(from, out); }

 private:
  // Checks the arguments and records the scratch memory that a GPU would need.
  template <typename Args>
  void admit(const Args& args) {
    check(args);
    if constexpr (requires { kernels::workspace_bytes(args); })
      counters_.workspace_bytes = std::max(counters_.workspace_bytes, kernels::workspace_bytes(args));
  }
  void count(double flops, double bytes) {
    counters_.flops += flops;
    counters_.bytes += bytes;
    ++counters_.launches;
  }

  Counters counters_;
};

}  // namespace

std::unique_ptr<Kernels> make_meta_kernels() { return std::make_unique<MetaKernels>(); }

}  // namespace trivet::kernels
