// Checks that the arguments of a kernel fit together, by the same rules on every device. Arguments that do not fit are a bug in
// the caller: the checks throw std::logic_error with the kernel's name, the rule, and all types and shapes. No data is read.
#pragma once

#include "kernels/kernels.h"

namespace trivet::kernels {

void check(const Matmul& args);
void check(const AddBias& args);
void check(const BiasGradient& args);
void check(const LayerNorm& args);
void check(const LayerNormBackwardInput& args);
void check(const LayerNormBackwardWeight& args);
void check(const RmsNorm& args);
void check(const RmsNormBackwardInput& args);
void check(const RmsNormBackwardWeight& args);
void check(const DropoutAdd& args);
void check(const DropoutBackward& args);
void check(const Gelu& args);
void check(const GeluBackward& args);
void check(const SwiGlu& args);
void check(const SwiGluBackward& args);
void check(const Rotary& args);
void check(const Attention& args);
void check(const AttentionBackward& args);
void check(const Embedding& args);
void check(const EmbeddingBackward& args);
void check(const CrossEntropy& args);
void check(const RowMaxima& args);
void check(const RowSums& args);
void check(const CrossEntropyOfPart& args);
void check(const SumLosses& args);
void check(const JudgeGradients& args);

void check(const Adam& args);
void check(const Sgd& args);
void check(const Lion& args);
void check(const Adagrad& args);
void check(const LambUpdate& args);
void check(const ApplyUpdate& args);
void check(const MomentumUpdate& args);

void check(const Quantize& args);
void check(const Dequantize& args);

void check_float(const char* kernel, ConstTensorView x);
void check_sum_of_squares(ConstTensorView x, ConstTensorView sum);
void check(const Squares& term, ConstTensorView sum);
void check_refused(const char* kernel, ConstTensorView refused);
// `from` and `out` may be in different memories, one on the host and one on the device.
void check_host_copy(ConstTensorView from, ConstTensorView out);
void check_copy(ConstTensorView from, ConstTensorView out);
void check_add(ConstTensorView from, ConstTensorView out);
void check_fixed_point(const char* kernel, ConstTensorView values, ConstTensorView sum);
void check_fixed_point_round(ConstTensorView x, ConstTensorView out);

}  // namespace trivet::kernels
