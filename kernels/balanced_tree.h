// Sums in a balanced tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)): the sum of a subtree does not depend on which rank adds
// the other leaves. A leaf without a value adds nothing, not even a zero.
#pragma once

#include <cstdint>
#include <optional>

namespace trivet::kernels {

// Sums `count` leaves from `first` on; `count` is a power of two. leaf(i) returns std::optional<Sum>.
template <typename Sum, typename Leaf>
std::optional<Sum> balanced_sum(int64_t first, int64_t count, const Leaf& leaf) {
  if (count == 1) return leaf(first);
  const std::optional<Sum> left = balanced_sum<Sum>(first, count / 2, leaf);
  const std::optional<Sum> right = balanced_sum<Sum>(first + count / 2, count / 2, leaf);
  if (left && right) return *left + *right;
  return left ? left : right;
}

}  // namespace trivet::kernels
