// The memory-bound CPU kernels. Each makes one pass over its tensors. The headers in kernels/kernels.h say what they compute;
// the caller has checked the arguments.
//
// Results have the same bits for any number of threads, any alignment and, since they are compiled without contraction of
// products and sums (CMakeLists.txt), any instruction set. Several threads of a process (ranks) may call these functions at the
// same time.
#pragma once

#include "kernels/kernels.h"

namespace trivet::kernels::cpu {

void compute(const AddBias& args, int threads);
void compute(const BiasGradient& args, int threads);
void compute(const LayerNorm& args, int threads);
void compute(const LayerNormBackwardInput& args, int threads);
void compute(const LayerNormBackwardWeight& args, int threads);
void compute(const RmsNorm& args, int threads);
void compute(const RmsNormBackwardInput& args, int threads);
void compute(const RmsNormBackwardWeight& args, int threads);
void compute(const HeadNorm& args, int threads);
void compute(const HeadNormBackwardInput& args, int threads);
void compute(const HeadNormBackwardWeight& args, int threads);
void compute(const DropoutAdd& args, int threads);
// Computes elements [begin, end) of a sum with a residual, on the calling thread.
void add_dropped_elements(const DropoutAdd& sum, int64_t begin, int64_t end);
void compute(const DropoutBackward& args, int threads);
void compute(const Gelu& args, int threads);
void compute(const GeluBackward& args, int threads);
void compute(const Relu& args, int threads);
void compute(const ReluBackward& args, int threads);
void compute(const SoftCap& args, int threads);
void compute(const SwiGlu& args, int threads);
void compute(const SwiGluBackward& args, int threads);
void compute(const Rotary& args, int threads);
void compute(const Embedding& args, int threads);
void compute(const EmbeddingBackward& args, int threads);
void compute(const ChooseTokens& args, int threads);
void compute(const GatherTokens& args, int threads);
void compute(const ScatterTokens& args, int threads);

void compute(const SumLosses& args, int threads);
void compute(const JudgeGradients& args, int threads);
void compute(const AdamUpdates& args, int threads);
void compute(const Sgd& args, int threads);
void compute(const Lion& args, int threads);
void compute(const Adagrad& args, int threads);
void compute(const LambUpdate& args, int threads);
void compute(const ApplyUpdate& args, int threads);
void compute(const MomentumUpdate& args, int threads);
void compute(const RunningAverage& args, int threads);

void compute(const Zero& args, int threads);
void compute(const Copy& args, int threads);
void compute(const Add& args, int threads);
void compute(const Scale& args, int threads);
void compute(const Initialize& args, int threads);
void compute(const SumOfSquares& args, int threads);
void compute(const DivideByNorm& args, int threads);
void compute(const FixedPointAdd& args, int threads);
void compute(const FixedPointStore& args, int threads);
void compute(const FixedPointRead& args, int threads);
void compute(const FixedPointRound& args, int threads);
void compute(const Quantize& args, int threads);
void compute(const Dequantize& args, int threads);

}  // namespace trivet::kernels::cpu
