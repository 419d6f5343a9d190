#include "model/head_sum.h"

#include "kernels/kernels.h"

namespace trivet::model {

ScopedTensor sum_over_heads(Context& context, ConstTensorView parts, std::span<const int64_t> chunk_ends) {
  kernels::Kernels& kernels = context.leaves ? context.leaves->within : context.kernels;  // rows are heads here
  const int64_t size = parts.shape[1], chunks = chunk_ends.empty() ? 1 : static_cast<int64_t>(chunk_ends.size());
  ScopedTensor sums(context.arena, statistics_dtype(parts.dtype), {chunks, size});
  for (int64_t chunk = 0, begin = 0; chunk < chunks; ++chunk) {
    const int64_t end = chunk_ends.empty() ? parts.shape[0] : chunk_ends[chunk];
    kernels.bias_gradient(
        {.dy = parts.row_range(begin, end - begin), .dbias = sums.view().slice(chunk * size, size), .accumulate = false});
    begin = end;
  }
  for (int64_t step = 1; step < chunks; step *= 2)
    for (int64_t chunk = 0; chunk + step < chunks; chunk += 2 * step)
      kernels.add(sums.view().slice((chunk + step) * size, size), sums.view().slice(chunk * size, size));
  return sums;
}

}  // namespace trivet::model
