// The kernels of the CPU in which nearly all floating-point operations happen. What they compute is said in kernels/kernels.h.
//
// `threads` is how many OpenMP threads a call may use (at least 1; fewer when the work is small). The bits of a result never
// depend on it: work is cut into pieces by the shapes alone and each piece is done by one thread in a fixed order. Several
// threads of a process (ranks) may call at the same time.
#pragma once

#include "kernels/kernels.h"

namespace trivet::kernels::cpu {

void matmul(const Matmul& args, int threads);
void attention(const Attention& args, int threads);
void attention_backward(const AttentionBackward& args, int threads);
void cross_entropy(const CrossEntropy& args, int threads);
void row_maxima(const RowMaxima& args, int threads);
void row_sums(const RowSums& args, int threads);
void cross_entropy_of_part(const CrossEntropyOfPart& args, int threads);

}  // namespace trivet::kernels::cpu
