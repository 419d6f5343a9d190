// The memory-bound CPU kernels. Each makes one pass over its tensors. kernels/kernels.h says what they compute; the caller has
// checked the arguments (kernels/check.h).
//
// Results have the same bits for any number of threads, any alignment and, since they are compiled without contraction of
// products and sums (CMakeLists.txt), any instruction set. Several threads of a process (ranks) may call these functions at the
// same time.
#pragma once

#include "kernels/kernels.h"

namespace trivet::kernels::cpu {

void add_bias(const AddBias& args, int threads);
void bias_gradient(const BiasGradient& args, int threads);
void layer_norm(const LayerNorm& args, int threads);
void layer_norm_backward_input(const LayerNormBackwardInput& args, int threads);
void layer_norm_backward_weight(const LayerNormBackwardWeight& args, int threads);
void rms_norm(const RmsNorm& args, int threads);
void rms_norm_backward_input(const RmsNormBackwardInput& args, int threads);
void rms_norm_backward_weight(const RmsNormBackwardWeight& args, int threads);
void dropout_add(const DropoutAdd& args, int threads);
// Computes elements [begin, end) of a sum with a residual, on the calling thread.
void add_dropped_elements(const DropoutAdd& sum, int64_t begin, int64_t end);
void dropout_backward(const DropoutBackward& args, int threads);
void gelu(const Gelu& args, int threads);
void gelu_backward(const GeluBackward& args, int threads);
void swiglu(const SwiGlu& args, int threads);
void swiglu_backward(const SwiGluBackward& args, int threads);
void rotary(const Rotary& args, int threads);
void embedding(const Embedding& args, int threads);
void embedding_backward(const EmbeddingBackward& args, int threads);

void sum_losses(const SumLosses& args);
void judge_gradients(const JudgeGradients& args);
void adam(const Adam& args, int threads);
void sgd(const Sgd& args, int threads);
void lion(const Lion& args, int threads);
void adagrad(const Adagrad& args, int threads);
void lamb_update(const LambUpdate& args, int threads);
void apply_update(const ApplyUpdate& args, int threads);
void momentum_update(const MomentumUpdate& args, int threads);

void zero(TensorView out, int threads);
void copy(ConstTensorView from, TensorView out, int threads);
void add(ConstTensorView from, TensorView out, int threads);
void scale(TensorView out, double factor, int threads);
void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element, int threads);
void sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum, int threads);
void fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused, int threads);
void fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused, int threads);
void fixed_point_read(ConstTensorView sum, TensorView out, int threads);
void fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused, int threads);

void quantize(const Quantize& args, int threads);
void dequantize(const Dequantize& args, int threads);

}  // namespace trivet::kernels::cpu
