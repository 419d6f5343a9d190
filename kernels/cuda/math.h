// The kernels of a CUDA device: one function for each kernel in kernels/kernels.h, named like its counterpart in kernels/cpu.
// The caller has checked the arguments (kernels/check.h); all tensors are in device memory.
//
// A function enqueues its work on the stream of its Launch and returns. It neither makes the host wait nor allocates memory.
// Where the arithmetic allows it, results have the same bits as on the CPU (these files are compiled without contraction of
// products and sums). Sums over threads are made in an order that depends only on shapes.
#pragma once

#include <cuda_runtime.h>

#include "kernels/kernels.h"

namespace trivet::kernels::cuda {

// What every kernel needs in addition to its arguments.
struct Launch {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  // Scratch memory of the stream, 256-byte aligned, with at least workspace_bytes() of the call (kernels/workspace.h). Its
  // contents are undefined.
  TensorView workspace;
};

void matmul(const Matmul& args, const Launch& launch);
void attention(const Attention& args, const Launch& launch);
void attention_backward(const AttentionBackward& args, const Launch& launch);

void add_bias(const AddBias& args, const Launch& launch);
void bias_gradient(const BiasGradient& args, const Launch& launch);
void layer_norm(const LayerNorm& args, const Launch& launch);
void layer_norm_backward_input(const LayerNormBackwardInput& args, const Launch& launch);
void layer_norm_backward_weight(const LayerNormBackwardWeight& args, const Launch& launch);
void rms_norm(const RmsNorm& args, const Launch& launch);
void rms_norm_backward_input(const RmsNormBackwardInput& args, const Launch& launch);
void rms_norm_backward_weight(const RmsNormBackwardWeight& args, const Launch& launch);
void dropout_add(const DropoutAdd& args, const Launch& launch);
void dropout_backward(const DropoutBackward& args, const Launch& launch);
void gelu(const Gelu& args, const Launch& launch);
void gelu_backward(const GeluBackward& args, const Launch& launch);
void swiglu(const SwiGlu& args, const Launch& launch);
void swiglu_backward(const SwiGluBackward& args, const Launch& launch);
void rotary(const Rotary& args, const Launch& launch);
void embedding(const Embedding& args, const Launch& launch);
void embedding_backward(const EmbeddingBackward& args, const Launch& launch);
// Targets that are not below the vocabulary size make the loss and the row's gradient NaN.
void cross_entropy(const CrossEntropy& args, const Launch& launch);
void row_maxima(const RowMaxima& args, const Launch& launch);
void row_sums(const RowSums& args, const Launch& launch);
void cross_entropy_of_part(const CrossEntropyOfPart& args, const Launch& launch);

void sum_losses(const SumLosses& args, const Launch& launch);
void judge_gradients(const JudgeGradients& args, const Launch& launch);
void adam(std::span<const Adam> updates, const Launch& launch);
inline void adam(const Adam& one, const Launch& launch) { adam(std::span(&one, 1), launch); }
void sgd(const Sgd& args, const Launch& launch);
void lion(const Lion& args, const Launch& launch);
void adagrad(const Adagrad& args, const Launch& launch);
void lamb_update(const LambUpdate& args, const Launch& launch);
void apply_update(const ApplyUpdate& args, const Launch& launch);
void momentum_update(const MomentumUpdate& args, const Launch& launch);

void zero(TensorView out, const Launch& launch);
void copy(ConstTensorView from, TensorView out, const Launch& launch);
void add(ConstTensorView from, TensorView out, const Launch& launch);
void scale(TensorView out, double factor, const Launch& launch);
void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element, const Launch& launch);
void sum_of_squares(std::span<const Squares> terms, TensorView sum, const Launch& launch);
inline void sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum, const Launch& launch) {
  const Squares one{x, scale, block};
  sum_of_squares(std::span(&one, 1), sum, launch);
}
void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon, const Launch& launch);
void fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused, const Launch& launch);
void fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused, const Launch& launch);
void fixed_point_read(ConstTensorView sum, TensorView out, const Launch& launch);
void fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused, const Launch& launch);

void quantize(const Quantize& args, const Launch& launch);
void dequantize(const Dequantize& args, const Launch& launch);

}  // namespace trivet::kernels::cuda
