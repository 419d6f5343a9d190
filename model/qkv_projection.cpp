#include "model/qkv_projection.h"

#include <array>
#include <stdexcept>

#include "kernels/kernels.h"
#include "tensor_parallel/split.h"

namespace trivet::model {

using tensor_parallel::reduce_over;
using tensor_parallel::split_axis;
namespace {

Linear::Options fused(const QkvProjection::Options& options) {
  const int64_t queries = options.heads * options.head_size, keys = options.key_value_heads * options.head_size;
  return {.in = options.hidden,
          .out = queries + 2 * keys,
          .bias = options.bias,
          .init_deviation = options.init_deviation,
          .split = {0, {queries, keys, keys}, {options.heads, options.key_value_heads, options.key_value_heads}},
          .adapters = options.adapters};
}

}  // namespace

QkvProjection::QkvProjection(const Options& options) : Linear(fused(options)), options_(options) {}

HeadRange head_range(int64_t heads, int64_t key_value_heads, const comm::RankAxis* axis) {
  if (!axis) return {0, heads, 0, key_value_heads};
  const int64_t size = axis->size();
  if (heads % size != 0 || (key_value_heads % size != 0 && size % key_value_heads != 0))
    throw std::logic_error("attention: heads do not divide among the tensor ranks");
  const tensor_parallel::UnitRange queries = tensor_parallel::unit_range(heads, axis->rank(), axis->size());
  const tensor_parallel::UnitRange keys = tensor_parallel::unit_range(key_value_heads, axis->rank(), axis->size());
  return {queries.begin, queries.count(), keys.begin, keys.count(), key_value_heads < size};
}

// [Note: gradients of shared key/value heads] The previous value of the gradient is set aside while the rows of keys and values
// hold this microbatch's part, because a sum over ranks must not count it more than once.
void QkvProjection::make_weight_gradients(Context& context, Gradients gradients, ConstTensorView x, ConstTensorView dy,
                                          const Saved& saved) const {
  const comm::RankAxis* axis = split_axis(context);
  const HeadRange heads = head_range(options_.heads, options_.key_value_heads, axis);
  if (!heads.key_value_shared) return Linear::make_weight_gradients(context, gradients, x, dy, saved);
  const int64_t head_size = options_.head_size;
  std::array<TensorView, 2> rows;  // key and value rows of the weight and of the bias
  std::array<ScopedTensor, 2> before;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const TensorView gradient = gradients[i].view;
    if (gradient.absent()) continue;
    const int64_t width = gradient.elements() / gradient.shape[0];
    rows[i] = gradient.slice(heads.count * head_size * width, 2 * head_size * width);
    if (!gradients[i].accumulate) continue;
    before[i] = ScopedTensor(context.arena, gradient.dtype, rows[i].shape);
    context.kernels.copy(rows[i], before[i]);
    context.kernels.zero(rows[i]);
  }
  Linear::make_weight_gradients(context, gradients, x, dy, saved);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (rows[i].absent()) continue;
    sum_over_holders(context, *axis, heads, rows[i]);
    if (!before[i].empty()) context.kernels.add(before[i], rows[i]);
  }
}

// Sums one buffer for all key/value heads, [G, elements of rows], into which each rank writes its part for its own head.
void QkvProjection::sum_over_holders(Context& context, const comm::RankAxis& axis, const HeadRange& heads,
                                     TensorView rows) const {
  const ScopedTensor all(context.arena, rows.dtype, {options_.key_value_heads, rows.elements()});
  const TensorView own = all.view().slice(heads.first_key_value * rows.elements(), rows.elements());
  context.kernels.zero(all);
  context.kernels.copy(rows, own);
  reduce_over(axis, all);
  context.kernels.copy(own, rows);
}

}  // namespace trivet::model
