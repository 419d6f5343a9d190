// The CPU kernels that do nearly all floating-point operations, and those of images. The headers in kernels/kernels.h say what
// they compute.
//
// `threads` is how many OpenMP threads a call may use (at least 1; it uses fewer if the work is small). The bits of a result
// never depend on it: the shapes alone decide how work is cut into pieces, and each piece is done by one thread in a fixed
// order. Several threads of a process (ranks) may call these functions at the same time.
#pragma once

#include "kernels/kernels.h"

namespace trivet::kernels::cpu {

void compute(const Matmul& args, int threads);
void compute(const Convolution& args, int threads);
void compute(const ConvolutionBackwardInput& args, int threads);
void compute(const ConvolutionBackwardWeight& args, int threads);
void compute(const Pool& args, int threads);
void compute(const PoolBackward& args, int threads);
void compute(const ChannelNorm& args, int threads);
void compute(const ChannelNormBackwardInput& args, int threads);
void compute(const ChannelNormBackwardWeight& args, int threads);
void compute(const NormalizeWith& args, int threads);
void compute(const AddStatistics& args, int threads);
void compute(const Attention& args, int threads);
void compute(const AttentionBackward& args, int threads);
void compute(const CrossEntropy& args, int threads);
void compute(const RowMaxima& args, int threads);
void compute(const RowSums& args, int threads);
void compute(const CrossEntropyOfPart& args, int threads);
void compute(const CountCorrect& args, int threads);
void compute(const Ctc& args, int threads);
void compute(const PreferenceLoss& args, int threads);
void compute(const Transpose& args, int threads);

}  // namespace trivet::kernels::cpu
