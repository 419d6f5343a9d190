// The CPU's Kernels. Each call checks its arguments and calls the function in kernels/cpu/math.h or kernels/cpu/fused/fused.h.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/math.h"
#include "kernels/kernels.h"

namespace trivet::kernels {
namespace {

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(int threads) : threads_(threads > 0 ? threads : std::max(1, omp_get_max_threads())) {}
  Device device() const override { return Device::Cpu; }

  void matmul(const Matmul& args) override { run(args, cpu::matmul); }
  void add_bias(const AddBias& args) override { run(args, cpu::add_bias); }
  void bias_gradient(const BiasGradient& args) override { run(args, cpu::bias_gradient); }
  void layer_norm(const LayerNorm& args) override { run(args, cpu::layer_norm); }
  void layer_norm_backward_input(const LayerNormBackwardInput& args) override { run(args, cpu::layer_norm_backward_input); }
  void layer_norm_backward_weight(const LayerNormBackwardWeight& args) override { run(args, cpu::layer_norm_backward_weight); }
  void rms_norm(const RmsNorm& args) override { run(args, cpu::rms_norm); }
  void rms_norm_backward_input(const RmsNormBackwardInput& args) override { run(args, cpu::rms_norm_backward_input); }
  void rms_norm_backward_weight(const RmsNormBackwardWeight& args) override { run(args, cpu::rms_norm_backward_weight); }
  void dropout_add(const DropoutAdd& args) override { run(args, cpu::dropout_add); }
  void dropout_backward(const DropoutBackward& args) override { run(args, cpu::dropout_backward); }
  void gelu(const Gelu& args) override { run(args, cpu::gelu); }
  void gelu_backward(const GeluBackward& args) override { run(args, cpu::gelu_backward); }
  void swiglu(const SwiGlu& args) override { run(args, cpu::swiglu); }
  void swiglu_backward(const SwiGluBackward& args) override { run(args, cpu::swiglu_backward); }
  void rotary(const Rotary& args) override { run(args, cpu::rotary); }
  void attention(const Attention& args) override { run(args, cpu::attention); }
  void attention_backward(const AttentionBackward& args) override { run(args, cpu::attention_backward); }
  void embedding(const Embedding& args) override { run(args, cpu::embedding); }
  void embedding_backward(const EmbeddingBackward& args) override { run(args, cpu::embedding_backward); }
  void cross_entropy(const CrossEntropy& args) override { run(args, cpu::cross_entropy); }
  void row_maxima(const RowMaxima& args) override { run(args, cpu::row_maxima); }
  void row_sums(const RowSums& args) override { run(args, cpu::row_sums); }
  void cross_entropy_of_part(const CrossEntropyOfPart& args) override { run(args, cpu::cross_entropy_of_part); }
  void sum_losses(const SumLosses& args) override {
    check(args);
    cpu::sum_losses(args);
  }

  void judge_gradients(const JudgeGradients& args) override {
    check(args);
    cpu::judge_gradients(args);
  }
  void adam(std::span<const Adam> updates) override {
    for (const Adam& args : updates) run(args, cpu::adam);
  }
  void sgd(const Sgd& args) override { run(args, cpu::sgd); }
  void lion(const Lion& args) override { run(args, cpu::lion); }
  void adagrad(const Adagrad& args) override { run(args, cpu::adagrad); }
  void lamb_update(const LambUpdate& args) override { run(args, cpu::lamb_update); }
  void apply_update(const ApplyUpdate& args) override { run(args, cpu::apply_update); }
  void momentum_update(const MomentumUpdate& args) override { run(args, cpu::momentum_update); }

  void zero(TensorView out) override { cpu::zero(out, threads_); }
  void copy(ConstTensorView from, TensorView out) override {
    check_copy(from, out);
    cpu::copy(from, out, threads_);
  }
  void add(ConstTensorView from, TensorView out) override {
    check_add(from, out);
    cpu::add(from, out, threads_);
  }
  void scale(TensorView out, double factor) override {
    check_float("scale", out);
    cpu::scale(out, factor, threads_);
  }
  void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element) override {
    check_float("initialize", out);
    cpu::initialize(out, init, key, first_element, threads_);
  }
  void sum_of_squares(std::span<const Squares> terms, TensorView sum) override {
    for (const Squares& term : terms) {
      check(term, sum);
      cpu::sum_of_squares(term.x, term.scale, term.block, sum, threads_);
    }
  }
  void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon) override {
    check_sum_of_squares(out, square_sum);
    cpu::scale(out, 1 / (std::sqrt(ExactSum::value_of(square_sum.as<int64_t>())) + epsilon), threads_);
  }
  void fixed_point_add(ConstTensorView x, Number factor, double limit, TensorView sum, TensorView refused) override {
    check_fixed_point("fixed_point_add", x, sum);
    check_refused("fixed_point_add", refused);
    cpu::fixed_point_add(x, factor, limit, sum, refused, threads_);
  }
  void fixed_point_store(ConstTensorView x, Number factor, double limit, TensorView sum, TensorView refused) override {
    check_fixed_point("fixed_point_store", x, sum);
    check_refused("fixed_point_store", refused);
    cpu::fixed_point_store(x, factor, limit, sum, refused, threads_);
  }
  void fixed_point_read(ConstTensorView sum, TensorView out) override {
    check_fixed_point("fixed_point_read", out, sum);
    cpu::fixed_point_read(sum, out, threads_);
  }
  void fixed_point_round(ConstTensorView x, Number factor, double limit, TensorView out, TensorView refused) override {
    check_fixed_point_round(x, out);
    check_refused("fixed_point_round", refused);
    cpu::fixed_point_round(x, factor, limit, out, refused, threads_);
  }
  void quantize(const Quantize& args) override { run(args, cpu::quantize); }
  void dequantize(const Dequantize& args) override { run(args, cpu::dequantize); }
  void from_host(ConstTensorView from, TensorView out) override { copy_same(from, out); }
  void to_host(ConstTensorView from, TensorView out) override { copy_same(from, out); }
  void copy_pinned(ConstTensorView from, TensorView out) override { copy_same(from, out); }

 private:
  template <typename Args>
  void run(const Args& args, void (*kernel)(const Args&, int)) {
    check(args);
    kernel(args, threads_);
  }

  void copy_same(ConstTensorView from, TensorView out) {
    check_host_copy(from, out);
    cpu::copy(from, out, threads_);
  }

  int threads_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(int threads) { return std::make_unique<CpuKernels>(threads); }

}  // namespace trivet::kernels
