#include "kernels/observed_kernels.h"

namespace trivet::kernels {
namespace {

using Sizes = std::array<int64_t, 5>;

Sizes rows_of(ConstTensorView x) { return {x.shape.rows(), x.shape.cols()}; }
Sizes elements_of(ConstTensorView x) { return {x.elements()}; }
// For a list of calls: the elements of all of them, and the type of the first one.
template <typename Args>
Sizes elements_of(std::span<const Args> list, ConstTensorView Args::*view) {
  Sizes sizes{};
  for (const Args& args : list) sizes[0] += (args.*view).elements();
  return sizes;
}
template <typename Args>
DType type_of(std::span<const Args> list, ConstTensorView Args::*view) {
  return list.empty() ? DType::Float32 : (list.front().*view).dtype;
}

std::string_view variant_of(const Matmul& a) {
  static constexpr std::string_view names[2][2][2] = {{{"nn", "nn+"}, {"nt", "nt+"}}, {{"tn", "tn+"}, {"tt", "tt+"}}};
  if (!a.activated.absent()) return a.transpose_b ? "nt gelu" : "nn gelu";
  if (!a.before_gelu.absent()) return a.transpose_b ? "nt gelu backward" : "nn gelu backward";
  return names[a.transpose_a][a.transpose_b][a.accumulate];
}
Sizes sizes_of(const Matmul& a) {
  return {a.out.shape.rows(), a.out.shape.cols(), a.transpose_a ? a.a.shape.rows() : a.a.shape.cols()};
}
template <typename Args>  // Attention, AttentionBackward
Sizes sizes_of_attention(const Args& a) {
  const int64_t heads = a.heads + 2 * a.key_value_heads;
  return {a.qkv.shape[0], a.qkv.shape[1], a.heads, a.key_value_heads, a.qkv.shape[2] / heads};
}

class ObservedKernels final : public Kernels {
 public:
  ObservedKernels(Kernels& inner, KernelObserver& observer)
      : inner_(inner), observer_(observer), counting_(make_meta_kernels()) {}

  Device device() const override { return inner_.device(); }
  Counters counters() const override { return inner_.counters(); }

  void matmul(const Matmul& a) override {
    observer_.asked(a);
    call({"matmul", variant_of(a), a.a.dtype, sizes_of(a)}, [&](Kernels& k) { k.matmul(a); });
  }
  void add_bias(const AddBias& a) override {
    call({"add_bias", "", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.add_bias(a); });
  }
  void bias_gradient(const BiasGradient& a) override {
    call({"bias_gradient", "", a.dy.dtype, rows_of(a.dy)}, [&](Kernels& k) { k.bias_gradient(a); });
  }
  void layer_norm(const LayerNorm& a) override {
    call({"layer_norm", a.sum.out.absent() ? "" : "sum", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.layer_norm(a); });
  }
  void layer_norm_backward_input(const LayerNormBackwardInput& a) override {
    call({"layer_norm_backward_input", "", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.layer_norm_backward_input(a); });
  }
  void layer_norm_backward_weight(const LayerNormBackwardWeight& a) override {
    call({"layer_norm_backward_weight", "", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.layer_norm_backward_weight(a); });
  }
  void rms_norm(const RmsNorm& a) override {
    call({"rms_norm", a.sum.out.absent() ? "" : "sum", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.rms_norm(a); });
  }
  void rms_norm_backward_input(const RmsNormBackwardInput& a) override {
    call({"rms_norm_backward_input", "", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.rms_norm_backward_input(a); });
  }
  void rms_norm_backward_weight(const RmsNormBackwardWeight& a) override {
    call({"rms_norm_backward_weight", "", a.x.dtype, rows_of(a.x)}, [&](Kernels& k) { k.rms_norm_backward_weight(a); });
  }
  void dropout_add(const DropoutAdd& a) override {
    call({"dropout_add", a.dropout.rate > 0 ? "drops" : "", a.x.dtype, elements_of(a.x)},
         [&](Kernels& k) { k.dropout_add(a); });
  }
  void dropout_backward(const DropoutBackward& a) override {
    call({"dropout_backward", "", a.dy.dtype, elements_of(a.dy)}, [&](Kernels& k) { k.dropout_backward(a); });
  }
  void gelu(const Gelu& a) override {
    call({"gelu", "", a.x.dtype, elements_of(a.x)}, [&](Kernels& k) { k.gelu(a); });
  }
  void gelu_backward(const GeluBackward& a) override {
    call({"gelu_backward", "", a.x.dtype, elements_of(a.x)}, [&](Kernels& k) { k.gelu_backward(a); });
  }
  void swiglu(const SwiGlu& a) override {
    call({"swiglu", "", a.y.dtype, rows_of(a.y)}, [&](Kernels& k) { k.swiglu(a); });
  }
  void swiglu_backward(const SwiGluBackward& a) override {
    call({"swiglu_backward", "", a.dy.dtype, rows_of(a.dy)}, [&](Kernels& k) { k.swiglu_backward(a); });
  }
  void rotary(const Rotary& a) override {
    call({"rotary", "", a.qkv.dtype, rows_of(a.qkv)}, [&](Kernels& k) { k.rotary(a); });
  }
  void attention(const Attention& a) override {
    call({"attention", a.dropout.rate > 0 ? "drops" : "", a.qkv.dtype, sizes_of_attention(a)},
         [&](Kernels& k) { k.attention(a); });
  }
  void attention_backward(const AttentionBackward& a) override {
    call({"attention_backward", a.dropout.rate > 0 ? "drops" : "", a.qkv.dtype, sizes_of_attention(a)},
         [&](Kernels& k) { k.attention_backward(a); });
  }
  void embedding(const Embedding& a) override {
    call({"embedding", "", a.out.dtype, rows_of(a.out)}, [&](Kernels& k) { k.embedding(a); });
  }
  void embedding_backward(const EmbeddingBackward& a) override {
    call({"embedding_backward", "", a.dy.dtype, rows_of(a.dy)}, [&](Kernels& k) { k.embedding_backward(a); });
  }
  void cross_entropy(const CrossEntropy& a) override {
    call({"cross_entropy", "", a.logits.dtype, rows_of(a.logits)}, [&](Kernels& k) { k.cross_entropy(a); });
  }
  void row_maxima(const RowMaxima& a) override {
    call({"row_maxima", "", a.logits.dtype, rows_of(a.logits)}, [&](Kernels& k) { k.row_maxima(a); });
  }
  void row_sums(const RowSums& a) override {
    call({"row_sums", "", a.logits.dtype, rows_of(a.logits)}, [&](Kernels& k) { k.row_sums(a); });
  }
  void cross_entropy_of_part(const CrossEntropyOfPart& a) override {
    call({"cross_entropy_of_part", "", a.logits.dtype, rows_of(a.logits)}, [&](Kernels& k) { k.cross_entropy_of_part(a); });
  }
  void sum_losses(const SumLosses& a) override {
    call({"sum_losses", "", a.losses.dtype, elements_of(a.losses)}, [&](Kernels& k) { k.sum_losses(a); });
  }
  void judge_gradients(const JudgeGradients& a) override {
    call({"judge_gradients", "", DType::Int64, {}}, [&](Kernels& k) { k.judge_gradients(a); });
  }
  void adam(std::span<const Adam> updates) override {
    call({"adam", "", type_of(updates, &Adam::gradient), elements_of(updates, &Adam::gradient)},
         [&](Kernels& k) { k.adam(updates); });
  }
  void sgd(const Sgd& a) override {
    call({"sgd", "", a.gradient.dtype, elements_of(a.master)}, [&](Kernels& k) { k.sgd(a); });
  }
  void lion(const Lion& a) override {
    call({"lion", "", a.gradient.dtype, elements_of(a.master)}, [&](Kernels& k) { k.lion(a); });
  }
  void adagrad(const Adagrad& a) override {
    call({"adagrad", "", a.gradient.dtype, elements_of(a.master)}, [&](Kernels& k) { k.adagrad(a); });
  }
  void lamb_update(const LambUpdate& a) override {
    call({"lamb_update", "", a.gradient.dtype, elements_of(a.master)}, [&](Kernels& k) { k.lamb_update(a); });
  }
  void apply_update(const ApplyUpdate& a) override {
    call({"apply_update", "", a.update.dtype, elements_of(a.master)}, [&](Kernels& k) { k.apply_update(a); });
  }
  void momentum_update(const MomentumUpdate& a) override {
    call({"momentum_update", "", a.gradient.dtype, elements_of(a.gradient)}, [&](Kernels& k) { k.momentum_update(a); });
  }
  void zero(TensorView out) override {
    call({"zero", "", out.dtype, elements_of(out)}, [&](Kernels& k) { k.zero(out); });
  }
  void copy(ConstTensorView from, TensorView out) override {
    call({"copy", from.dtype == out.dtype ? "" : "converts", from.dtype, elements_of(out)},
         [&](Kernels& k) { k.copy(from, out); });
  }
  void add(ConstTensorView from, TensorView out) override {
    call({"add", "", out.dtype, elements_of(out)}, [&](Kernels& k) { k.add(from, out); });
  }
  void scale(TensorView out, double factor) override {
    call({"scale", "", out.dtype, elements_of(out)}, [&](Kernels& k) { k.scale(out, factor); });
  }
  void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element) override {
    call({"initialize", "", out.dtype, elements_of(out)}, [&](Kernels& k) { k.initialize(out, init, key, first_element); });
  }
  void sum_of_squares(std::span<const Squares> terms, TensorView sum) override {
    call({"sum_of_squares", "", type_of(terms, &Squares::x), elements_of(terms, &Squares::x)},
         [&](Kernels& k) { k.sum_of_squares(terms, sum); });
  }
  void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon) override {
    call({"divide_by_norm", "", out.dtype, elements_of(out)}, [&](Kernels& k) { k.divide_by_norm(out, square_sum, epsilon); });
  }
  void fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) override {
    call({"fixed_point_add", "", x.dtype, elements_of(x)},
         [&](Kernels& k) { k.fixed_point_add(x, scale, limit, sum, refused); });
  }
  void fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) override {
    call({"fixed_point_store", "", x.dtype, elements_of(x)},
         [&](Kernels& k) { k.fixed_point_store(x, scale, limit, sum, refused); });
  }
  void fixed_point_read(ConstTensorView sum, TensorView out) override {
    call({"fixed_point_read", "", out.dtype, elements_of(out)}, [&](Kernels& k) { k.fixed_point_read(sum, out); });
  }
  void fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused) override {
    call({"fixed_point_round", "", x.dtype, elements_of(x)},
         [&](Kernels& k) { k.fixed_point_round(x, scale, limit, out, refused); });
  }
  void quantize(const Quantize& a) override {
    call({"quantize", a.bits == 4 ? "4" : "8", a.x.dtype, elements_of(a.x)}, [&](Kernels& k) { k.quantize(a); });
  }
  void dequantize(const Dequantize& a) override {
    call({"dequantize", a.bits == 4 ? "4" : "8", a.out.dtype, elements_of(a.out)}, [&](Kernels& k) { k.dequantize(a); });
  }
  void from_host(ConstTensorView from, TensorView out) override { inner_.from_host(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { inner_.to_host(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { inner_.copy_pinned(from, out); }

 private:
  template <typename Work>
  void call(KernelCall told, Work&& work) {
    const Counters before = counting_->counters();
    work(*counting_);
    const Counters after = counting_->counters();
    told.flops = after.flops - before.flops;
    told.bytes = after.bytes - before.bytes;
    observer_.begins();
    work(inner_);
    observer_.ended(told);
  }

  Kernels& inner_;
  KernelObserver& observer_;
  std::unique_ptr<Kernels> counting_;
};

}  // namespace

std::unique_ptr<Kernels> make_observed_kernels(Kernels& inner, KernelObserver& observer) {
  return std::make_unique<ObservedKernels>(inner, observer);
}

}  // namespace trivet::kernels
