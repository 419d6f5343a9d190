// Decides which attention runs on tensor cores, and with which types and head sizes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>

#include "core/tensor_view.h"

namespace trivet::kernels::cuda {

// Tensor cores take 16-bit numbers, head sizes 64, 96 and 128, and tensors aligned to the 16 bytes that are copied at a time.
// With these head sizes, all rows are aligned if the first one is.
inline bool on_tensor_cores(const ConstTensorView& qkv, int64_t heads, int64_t key_value_heads,
                            std::initializer_list<ConstTensorView> others) {
  const int64_t head_size = qkv.shape[2] / (heads + 2 * key_value_heads);
  const auto aligned = [](const ConstTensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; };
  bool all_aligned = aligned(qkv);
  for (const ConstTensorView& view : others) all_aligned = all_aligned && aligned(view);
  return (qkv.dtype == DType::BFloat16 || qkv.dtype == DType::Float16) &&
         (head_size == 64 || head_size == 96 || head_size == 128) && all_aligned;
}

// Calls body.operator()<T, D, dropout, documents>(). Both together are not for tensor cores: they would be a third more
// kernels, and who trains on documents seldom drops probabilities.
template <typename Body>
void dispatch_tensor_cores(const ConstTensorView& qkv, int64_t heads, int64_t key_value_heads, bool dropout, bool documents,
                           Body&& body) {
  const auto with_type_and_size = [&]<typename T, int D>() {
    if (documents)
      body.template operator()<T, D, false, true>();
    else if (dropout)
      body.template operator()<T, D, true, false>();
    else
      body.template operator()<T, D, false, false>();
  };
  const auto with_type = [&]<typename T>() {
    switch (qkv.shape[2] / (heads + 2 * key_value_heads)) {
      case 64: return with_type_and_size.template operator()<T, 64>();
      case 96: return with_type_and_size.template operator()<T, 96>();
      case 128: return with_type_and_size.template operator()<T, 128>();
      default: throw std::logic_error("attention: no kernel for tensor cores with this head size");
    }
  };
  if (qkv.dtype == DType::BFloat16)
    with_type.template operator()<__nv_bfloat16>();
  else
    with_type.template operator()<__half>();
}

}  // namespace trivet::kernels::cuda
