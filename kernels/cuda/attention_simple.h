// Attention without tensor cores: any float type, any head size up to kLargestHeadSize, any alignment, causal or not, with
// or without a window, a soft cap and documents.
#pragma once

#include "kernels/cuda/math.h"

namespace trivet::kernels::cuda {

inline constexpr int kLargestHeadSize = 256;

void simple_attention(const Attention& args, const Launch& launch);
void simple_attention_backward(const AttentionBackward& args, const Launch& launch);

}  // namespace trivet::kernels::cuda
