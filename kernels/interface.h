// The interface of all kernels. CpuKernels and CudaKernels compute, MetaKernels only counts.
//
// A kernel is called with a struct of its arguments, which says what it computes (products.h, norms.h ...), checks itself and
// describes its cost. To add one: a struct with check() and describe(), its name in KernelArguments below, and a function
// compute(arguments, ...) for each device.
//
//   T rows (tokens of a microbatch: batch x sequence), H hidden, F feed-forward, V vocabulary
//   B sequences, S tokens per sequence, N query heads, G key/value heads (G divides N), D head size
//
// These rules hold for all kernels. Tensors are dense and row-major. Unless stated otherwise, all activations, weights and
// gradients of a call have one dtype (float32, bfloat16, float16 or, for gradient checks, float64); sums and statistics are
// kept in float32 (float64 when the dtype is float64). Gradients of parameters (Matmul::out, dbias, dgain, dtable, dpositions)
// may also be float32, whatever the dtype of the rest: layout mode rounds a microbatch's gradient once, from float32.
// "accumulate" means out += result instead of out = result, rounded once. Arguments marked optional may be absent. Device
// kernels are enqueued on the stream that the object is bound to; CPU kernels are done when the call returns. Losses, sums and
// counts are added to tensors too, so that nobody has to wait for them. Results do not depend on the number of threads, nor on
// what else is in a call: where the mathematics allows it, row t of an output depends only on row t of the inputs. Sums over
// rows (weight gradients) run in a fixed order. Sizes may be 0. Values that may change from step to step are Numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "core/device.h"
#include "core/number.h"
#include "core/parameter_spec.h"
#include "core/tensor_view.h"

namespace trivet::kernels {

// kernels/products.h
struct Matmul;
struct AddBias;
struct BiasGradient;
// kernels/elementwise.h
struct DropoutAdd;
struct DropoutBackward;
struct Gelu;
struct GeluBackward;
struct SwiGlu;
struct SwiGluBackward;
struct Relu;
struct ReluBackward;
struct SoftCap;
// kernels/convolution.h
struct Convolution;
struct ConvolutionBackwardInput;
struct ConvolutionBackwardWeight;
struct Pool;
struct PoolBackward;
// kernels/channel_norm.h
struct ChannelNorm;
struct ChannelNormBackwardInput;
struct ChannelNormBackwardWeight;
struct NormalizeWith;
struct AddStatistics;
// kernels/norms.h
struct LayerNorm;
struct LayerNormBackwardInput;
struct LayerNormBackwardWeight;
struct RmsNorm;
struct RmsNormBackwardInput;
struct RmsNormBackwardWeight;
struct HeadNorm;
struct HeadNormBackwardInput;
struct HeadNormBackwardWeight;
// kernels/attention.h
struct Rotary;
struct Attention;
struct AttentionBackward;
// kernels/embedding.h
struct Embedding;
struct EmbeddingBackward;
// kernels/token_choice.h
struct ChooseTokens;
struct GatherTokens;
struct ScatterTokens;
// kernels/losses.h
struct CrossEntropy;
struct RowMaxima;
struct RowSums;
struct CrossEntropyOfPart;
struct CountCorrect;
struct SumLosses;
struct JudgeGradients;
// kernels/ctc.h
struct Ctc;
// kernels/preference.h
struct PreferenceLoss;
// kernels/optimizers.h
struct Adam;
struct AdamUpdates;
struct Sgd;
struct Lion;
struct Adagrad;
struct LambUpdate;
struct ApplyUpdate;
struct MomentumUpdate;
struct RunningAverage;
// kernels/memory.h
struct Zero;
struct Copy;
struct Add;
struct Scale;
struct Transpose;
struct Initialize;
// kernels/sums.h
struct SumOfSquares;
struct DivideByNorm;
struct FixedPointAdd;
struct FixedPointStore;
struct FixedPointRead;
struct FixedPointRound;
struct Squares;
// kernels/quantization.h
struct Quantize;
struct Dequantize;

// The arguments of any kernel.
using KernelArguments =
    std::variant<const Matmul*, const AddBias*, const BiasGradient*, const DropoutAdd*, const DropoutBackward*, const Gelu*,
                 const GeluBackward*, const Relu*, const ReluBackward*, const SoftCap*, const Convolution*,
                 const ConvolutionBackwardInput*, const ConvolutionBackwardWeight*, const Pool*, const PoolBackward*,
                 const ChannelNorm*, const ChannelNormBackwardInput*, const ChannelNormBackwardWeight*, const NormalizeWith*,
                 const AddStatistics*, const SwiGlu*, const SwiGluBackward*, const LayerNorm*, const LayerNormBackwardInput*,
                 const LayerNormBackwardWeight*, const RmsNorm*, const RmsNormBackwardInput*, const RmsNormBackwardWeight*,
                 const Rotary*, const Attention*, const AttentionBackward*, const Embedding*, const EmbeddingBackward*,
                 const CrossEntropy*, const RowMaxima*, const RowSums*, const CrossEntropyOfPart*, const CountCorrect*,
                 const Ctc*, const PreferenceLoss*, const SumLosses*, const JudgeGradients*, const AdamUpdates*, const Sgd*,
                 const Lion*, const Adagrad*, const LambUpdate*, const ApplyUpdate*, const MomentumUpdate*,
                 const RunningAverage*, const Zero*, const Copy*, const Add*, const Scale*, const Transpose*, const Initialize*,
                 const SumOfSquares*, const DivideByNorm*, const FixedPointAdd*, const FixedPointStore*, const FixedPointRead*,
                 const FixedPointRound*, const Quantize*, const Dequantize*, const HeadNorm*, const HeadNormBackwardInput*,
                 const HeadNormBackwardWeight*, const ChooseTokens*, const GatherTokens*, const ScatterTokens*>;

// FLOPs, bytes moved and launches so far, and the largest scratch memory that one of the calls needs on a GPU
// (kernels/workspace.h). Only MetaKernels counts; the other kernels return zeros.
struct Counters {
  double flops = 0, bytes = 0;
  int64_t launches = 0, workspace_bytes = 0;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual Device device() const = 0;

  // Runs the kernel that takes these arguments. Throws std::logic_error if they do not fit together (check() of each).
  virtual void run(const KernelArguments& arguments) = 0;

  void matmul(const Matmul& a) { run(&a); }
  void add_bias(const AddBias& a) { run(&a); }
  void bias_gradient(const BiasGradient& a) { run(&a); }
  void dropout_add(const DropoutAdd& a) { run(&a); }
  void dropout_backward(const DropoutBackward& a) { run(&a); }
  void gelu(const Gelu& a) { run(&a); }
  void gelu_backward(const GeluBackward& a) { run(&a); }
  void relu(const Relu& a) { run(&a); }
  void relu_backward(const ReluBackward& a) { run(&a); }
  void soft_cap(const SoftCap& a) { run(&a); }
  void convolution(const Convolution& a) { run(&a); }
  void convolution_backward_input(const ConvolutionBackwardInput& a) { run(&a); }
  void convolution_backward_weight(const ConvolutionBackwardWeight& a) { run(&a); }
  void pool(const Pool& a) { run(&a); }
  void pool_backward(const PoolBackward& a) { run(&a); }
  void channel_norm(const ChannelNorm& a) { run(&a); }
  void channel_norm_backward_input(const ChannelNormBackwardInput& a) { run(&a); }
  void channel_norm_backward_weight(const ChannelNormBackwardWeight& a) { run(&a); }
  void normalize_with(const NormalizeWith& a) { run(&a); }
  void add_statistics(const AddStatistics& a) { run(&a); }
  void swiglu(const SwiGlu& a) { run(&a); }
  void swiglu_backward(const SwiGluBackward& a) { run(&a); }
  void layer_norm(const LayerNorm& a) { run(&a); }
  void layer_norm_backward_input(const LayerNormBackwardInput& a) { run(&a); }
  void layer_norm_backward_weight(const LayerNormBackwardWeight& a) { run(&a); }
  void rms_norm(const RmsNorm& a) { run(&a); }
  void rms_norm_backward_input(const RmsNormBackwardInput& a) { run(&a); }
  void rms_norm_backward_weight(const RmsNormBackwardWeight& a) { run(&a); }
  void head_norm(const HeadNorm& a) { run(&a); }
  void head_norm_backward_input(const HeadNormBackwardInput& a) { run(&a); }
  void head_norm_backward_weight(const HeadNormBackwardWeight& a) { run(&a); }
  void rotary(const Rotary& a) { run(&a); }
  void attention(const Attention& a) { run(&a); }
  void attention_backward(const AttentionBackward& a) { run(&a); }
  void embedding(const Embedding& a) { run(&a); }
  void embedding_backward(const EmbeddingBackward& a) { run(&a); }
  void choose_tokens(const ChooseTokens& a) { run(&a); }
  void gather_tokens(const GatherTokens& a) { run(&a); }
  void scatter_tokens(const ScatterTokens& a) { run(&a); }
  void cross_entropy(const CrossEntropy& a) { run(&a); }
  void row_maxima(const RowMaxima& a) { run(&a); }
  void row_sums(const RowSums& a) { run(&a); }
  void cross_entropy_of_part(const CrossEntropyOfPart& a) { run(&a); }
  void count_correct(const CountCorrect& a) { run(&a); }
  void ctc(const Ctc& a) { run(&a); }
  void preference_loss(const PreferenceLoss& a) { run(&a); }
  void sum_losses(const SumLosses& a) { run(&a); }
  void judge_gradients(const JudgeGradients& a) { run(&a); }
  void sgd(const Sgd& a) { run(&a); }
  void lion(const Lion& a) { run(&a); }
  void adagrad(const Adagrad& a) { run(&a); }
  void lamb_update(const LambUpdate& a) { run(&a); }
  void apply_update(const ApplyUpdate& a) { run(&a); }
  void momentum_update(const MomentumUpdate& a) { run(&a); }
  void running_average(const RunningAverage& a) { run(&a); }
  void adam(const Adam& one);
  void adam(std::span<const Adam> updates);  // the result is the same as with one call per update

  void zero(TensorView out);
  void copy(ConstTensorView from, TensorView out);
  void add(ConstTensorView from, TensorView out);
  void scale(TensorView out, double factor);
  void transpose(ConstTensorView from, TensorView out);
  void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element);

  void sum_of_squares(std::span<const Squares> terms, TensorView sum);
  void sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum);
  void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon);
  void fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused);
  void fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused);
  void fixed_point_read(ConstTensorView sum, TensorView out);
  void fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused);

  void quantize(ConstTensorView x, TensorView packed, int bits);
  void dequantize(ConstTensorView packed, TensorView out, int bits, bool accumulate);

  // Copies between device and host memory, of the same type and size. `from` may change once from_host has returned. to_host
  // returns when all work before it is done; it is the only call that always waits.
  virtual void from_host(ConstTensorView from, TensorView out) = 0;
  virtual void to_host(ConstTensorView from, TensorView out) = 0;
  // Copies in either direction, in stream order like a kernel. The host does not wait: until the copy is done, `from` must not
  // change and nobody else may use `out`. It is slow if the host memory is not page-locked (Backend::staging_allocator).
  virtual void copy_pinned(ConstTensorView from, TensorView out) = 0;

  virtual Counters counters() const { return {}; }
};

// threads: how many threads the kernels may use (0: all that OpenMP offers).
std::unique_ptr<Kernels> make_cpu_kernels(int threads);
// The meta kernels compute nothing; their views need no memory.
std::unique_ptr<Kernels> make_meta_kernels();

}  // namespace trivet::kernels
