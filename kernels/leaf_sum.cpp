#include "kernels/leaf_sum.h"

#include <stdexcept>

#include "kernels/kernels.h"

namespace trivet::kernels {

TensorView LeafSum::begin_leaf() {
  partials_.push_back({ScopedTensor(arena_, dtype_, shape_), 0});
  return partials_.back().sum;
}

void LeafSum::end_leaf() {
  while (partials_.size() > 1 && partials_.back().level == partials_[partials_.size() - 2].level) {
    Partial& before = partials_[partials_.size() - 2];
    kernels_.add(partials_.back().sum, before.sum);
    ++before.level;
    partials_.pop_back();
  }
}

void LeafSum::store(TensorView out, bool accumulate) {
  if (partials_.size() != 1) throw std::logic_error("leaf sum: the number of leaves is not a power of two");
  accumulate ? kernels_.add(partials_[0].sum, out) : kernels_.copy(partials_[0].sum, out);
  partials_.clear();
}

}  // namespace trivet::kernels
