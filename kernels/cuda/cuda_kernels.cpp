#include "kernels/cuda/cuda_kernels.h"

#include <map>
#include <stdexcept>
#include <string>

#include "core/cuda/error.h"
#include "kernels/check.h"
#include "kernels/cuda/host_copies.h"
#include "kernels/cuda/math.h"
#include "kernels/workspace.h"

namespace trivet::kernels {
namespace {

int multiprocessors_of(int device) {
  int count = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const CudaKernelsOptions& options)
      : options_(options),
        multiprocessors_(multiprocessors_of(options.streams->device())),
        host_copies_(options.streams->device(), options.staging_bytes) {}
  Device device() const override { return Device::Cuda; }

  void matmul(const Matmul& args) override { run(args, cuda::matmul); }
  void add_bias(const AddBias& args) override { run(args, cuda::add_bias); }
  void bias_gradient(const BiasGradient& args) override { run(args, cuda::bias_gradient); }
  void layer_norm(const LayerNorm& args) override { run(args, cuda::layer_norm); }
  void layer_norm_backward_input(const LayerNormBackwardInput& args) override { run(args, cuda::layer_norm_backward_input); }
  void layer_norm_backward_weight(const LayerNormBackwardWeight& args) override { run(args, cuda::layer_norm_backward_weight); }
  void rms_norm(const RmsNorm& args) override { run(args, cuda::rms_norm); }
  void rms_norm_backward_input(const RmsNormBackwardInput& args) override { run(args, cuda::rms_norm_backward_input); }
  void rms_norm_backward_weight(const RmsNormBackwardWeight& args) override { run(args, cuda::rms_norm_backward_weight); }
  void dropout_add(const DropoutAdd& args) override { run(args, cuda::dropout_add); }
  void dropout_backward(const DropoutBackward& args) override { run(args, cuda::dropout_backward); }
  void gelu(const Gelu& args) override { run(args, cuda::gelu); }
  void gelu_backward(const GeluBackward& args) override { run(args, cuda::gelu_backward); }
  void swiglu(const SwiGlu& args) override { run(args, cuda::swiglu); }
  void swiglu_backward(const SwiGluBackward& args) override { run(args, cuda::swiglu_backward); }
  void rotary(const Rotary& args) override { run(args, cuda::rotary); }
  void attention(const Attention& args) override { run(args, cuda::attention); }
  void attention_backward(const AttentionBackward& args) override { run(args, cuda::attention_backward); }
  void embedding(const Embedding& args) override { run(args, cuda::embedding); }
  void embedding_backward(const EmbeddingBackward& args) override { run(args, cuda::embedding_backward); }
  void cross_entropy(const CrossEntropy& args) override { run(args, cuda::cross_entropy); }
  void row_maxima(const RowMaxima& args) override { run(args, cuda::row_maxima); }
  void row_sums(const RowSums& args) override { run(args, cuda::row_sums); }
  void cross_entropy_of_part(const CrossEntropyOfPart& args) override { run(args, cuda::cross_entropy_of_part); }
  void sum_losses(const SumLosses& args) override { run(args, cuda::sum_losses); }

  void judge_gradients(const JudgeGradients& args) override { run(args, cuda::judge_gradients); }
  void adam(std::span<const Adam> updates) override {
    for (const Adam& args : updates) check(args);
    cuda::adam(updates, launch());
  }
  void sgd(const Sgd& args) override { run(args, cuda::sgd); }
  void lion(const Lion& args) override { run(args, cuda::lion); }
  void adagrad(const Adagrad& args) override { run(args, cuda::adagrad); }
  void lamb_update(const LambUpdate& args) override { run(args, cuda::lamb_update); }
  void apply_update(const ApplyUpdate& args) override { run(args, cuda::apply_update); }
  void momentum_update(const MomentumUpdate& args) override { run(args, cuda::momentum_update); }

  void zero(TensorView out) override { cuda::zero(out, launch()); }
  void copy(ConstTensorView from, TensorView out) override {
    check_copy(from, out);
    cuda::copy(from, out, launch());
  }
  void add(ConstTensorView from, TensorView out) override {
    check_add(from, out);
    cuda::add(from, out, launch());
  }
  void scale(TensorView out, double factor) override {
    check_float("scale", out);
    cuda::scale(out, factor, launch());
  }
  void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element) override {
    check_float("initialize", out);
    cuda::initialize(out, init, key, first_element, launch());
  }
  void sum_of_squares(std::span<const Squares> terms, TensorView sum) override {
    for (const Squares& term : terms) check(term, sum);
    cuda::sum_of_squares(terms, sum, launch());
  }
  void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon) override {
    check_sum_of_squares(out, square_sum);
    cuda::divide_by_norm(out, square_sum, epsilon, launch());
  }
  void fixed_point_add(ConstTensorView x, Number factor, double limit, TensorView sum, TensorView refused) override {
    check_fixed_point("fixed_point_add", x, sum);
    check_refused("fixed_point_add", refused);
    cuda::fixed_point_add(x, factor, limit, sum, refused, launch());
  }
  void fixed_point_store(ConstTensorView x, Number factor, double limit, TensorView sum, TensorView refused) override {
    check_fixed_point("fixed_point_store", x, sum);
    check_refused("fixed_point_store", refused);
    cuda::fixed_point_store(x, factor, limit, sum, refused, launch());
  }
  void fixed_point_read(ConstTensorView sum, TensorView out) override {
    check_fixed_point("fixed_point_read", out, sum);
    cuda::fixed_point_read(sum, out, launch());
  }
  void fixed_point_round(ConstTensorView x, Number factor, double limit, TensorView out, TensorView refused) override {
    check_fixed_point_round(x, out);
    check_refused("fixed_point_round", refused);
    cuda::fixed_point_round(x, factor, limit, out, refused, launch());
  }
  void quantize(const Quantize& args) override { run(args, cuda::quantize); }
  void dequantize(const Dequantize& args) override { run(args, cuda::dequantize); }
  void from_host(ConstTensorView from, TensorView out) override {
    check_host_copy(from, out);
    host_copies_.to_device(from.data, out.data, out.bytes(), launch().stream);
  }
  void to_host(ConstTensorView from, TensorView out) override {
    check_host_copy(from, out);
    host_copies_.to_host(from.data, out.data, out.bytes(), launch().stream);
    if (options_.after_wait) options_.after_wait();
  }
  void copy_pinned(ConstTensorView from, TensorView out) override {
    check_host_copy(from, out);
    cuda::HostCopies::pinned(from.data, out.data, out.bytes(), launch().stream);
  }

 private:
  template <typename Args>
  void run(const Args& args, void (*kernel)(const Args&, const cuda::Launch&)) {
    check(args);
    cuda::Launch on = launch();
    if constexpr (requires { workspace_bytes(args); }) on.workspace = workspace(on.stream, workspace_bytes(args));
    kernel(args, on);
  }

  cuda::Launch launch() const { return {options_.streams->current(), multiprocessors_, {}}; }

  TensorView workspace(cudaStream_t stream, int64_t bytes) {
    if (bytes == 0) return {};
    if (bytes > options_.workspace_bytes)
      throw std::logic_error("cuda kernels: a kernel needs a workspace of " + std::to_string(bytes) +
                             " bytes, but the plan provides " + std::to_string(options_.workspace_bytes));
    Buffer& memory = workspaces_[stream];
    if (memory.empty())
      memory = Buffer(*options_.allocator, *options_.meter, MemoryCategory::Buffers, DType::UInt8, {options_.workspace_bytes});
    return memory.view();
  }

  const CudaKernelsOptions options_;
  const int multiprocessors_;
  cuda::HostCopies host_copies_;
  std::map<cudaStream_t, Buffer> workspaces_;
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(const CudaKernelsOptions& options) { return std::make_unique<CudaKernels>(options); }

}  // namespace trivet::kernels
