// The kernels of a CUDA device: one function compute() for the arguments of each kernel (the headers in kernels/kernels.h). The
// caller has checked the arguments; all tensors are in device memory.
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

void compute(const Matmul& args, const Launch& launch);
void compute(const Attention& args, const Launch& launch);
void compute(const AttentionBackward& args, const Launch& launch);

void compute(const AddBias& args, const Launch& launch);
void compute(const BiasGradient& args, const Launch& launch);
void compute(const LayerNorm& args, const Launch& launch);
void compute(const LayerNormBackwardInput& args, const Launch& launch);
void compute(const LayerNormBackwardWeight& args, const Launch& launch);
void compute(const RmsNorm& args, const Launch& launch);
void compute(const RmsNormBackwardInput& args, const Launch& launch);
void compute(const RmsNormBackwardWeight& args, const Launch& launch);
void compute(const HeadNorm& args, const Launch& launch);
void compute(const HeadNormBackwardInput& args, const Launch& launch);
void compute(const HeadNormBackwardWeight& args, const Launch& launch);
void compute(const DropoutAdd& args, const Launch& launch);
void compute(const DropoutBackward& args, const Launch& launch);
void compute(const Gelu& args, const Launch& launch);
void compute(const GeluBackward& args, const Launch& launch);
void compute(const Relu& args, const Launch& launch);
void compute(const ReluBackward& args, const Launch& launch);
void compute(const SoftCap& args, const Launch& launch);
void compute(const SwiGlu& args, const Launch& launch);
void compute(const SwiGluBackward& args, const Launch& launch);
void compute(const Rotary& args, const Launch& launch);
void compute(const Embedding& args, const Launch& launch);
void compute(const EmbeddingBackward& args, const Launch& launch);
void compute(const ChooseTokens& args, const Launch& launch);
void compute(const GatherTokens& args, const Launch& launch);
void compute(const ScatterTokens& args, const Launch& launch);
// Targets that are not below the vocabulary size make the loss and the row's gradient NaN.
void compute(const CrossEntropy& args, const Launch& launch);
void compute(const RowMaxima& args, const Launch& launch);
void compute(const RowSums& args, const Launch& launch);
void compute(const CrossEntropyOfPart& args, const Launch& launch);

void compute(const CountCorrect& args, const Launch& launch);
// Targets that are not below the number of classes make the loss and the sample's gradient NaN.
void compute(const Ctc& args, const Launch& launch);
void compute(const PreferenceLoss& args, const Launch& launch);

void compute(const Convolution& args, const Launch& launch);
void compute(const ConvolutionBackwardInput& args, const Launch& launch);
void compute(const ConvolutionBackwardWeight& args, const Launch& launch);
void compute(const Pool& args, const Launch& launch);
void compute(const PoolBackward& args, const Launch& launch);
void compute(const ChannelNorm& args, const Launch& launch);
void compute(const ChannelNormBackwardInput& args, const Launch& launch);
void compute(const ChannelNormBackwardWeight& args, const Launch& launch);
void compute(const NormalizeWith& args, const Launch& launch);
void compute(const AddStatistics& args, const Launch& launch);

void compute(const SumLosses& args, const Launch& launch);
void compute(const JudgeGradients& args, const Launch& launch);
void compute(const AdamUpdates& args, const Launch& launch);
void compute(const Sgd& args, const Launch& launch);
void compute(const Lion& args, const Launch& launch);
void compute(const Adagrad& args, const Launch& launch);
void compute(const LambUpdate& args, const Launch& launch);
void compute(const ApplyUpdate& args, const Launch& launch);
void compute(const MomentumUpdate& args, const Launch& launch);
void compute(const RunningAverage& args, const Launch& launch);

void compute(const Zero& args, const Launch& launch);
void compute(const Copy& args, const Launch& launch);
void compute(const Add& args, const Launch& launch);
void compute(const Scale& args, const Launch& launch);
void compute(const Transpose& args, const Launch& launch);
void compute(const Initialize& args, const Launch& launch);
void compute(const SumOfSquares& args, const Launch& launch);
void compute(const DivideByNorm& args, const Launch& launch);
void compute(const FixedPointAdd& args, const Launch& launch);
void compute(const FixedPointStore& args, const Launch& launch);
void compute(const FixedPointRead& args, const Launch& launch);
void compute(const FixedPointRound& args, const Launch& launch);
void compute(const Quantize& args, const Launch& launch);
void compute(const Dequantize& args, const Launch& launch);

}  // namespace trivet::kernels::cuda
