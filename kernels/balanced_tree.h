// Sums in a balanced tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)): what a power of two of neighbouring leaves adds up to
// does not depend on who adds the others. A leaf without a value adds nothing, not even a zero.
#pragma once

#include <cstdint>
#include <optional>

namespace trivet::kernels {

// leaf(i) -> std::optional<Sum>; `count` leaves from `first`, a power of two.
template <typename Sum, typename Leaf>
std::optional<Sum> balanced_sum(int64_t first, int64_t count, const Leaf& leaf) {
  if (count == 1) return leaf(first);
  const std::optional<Sum> left = balanced_sum<Sum>(first, count / 2, leaf);
  const std::optional<Sum> right = balanced_sum<Sum>(first + count / 2, count / 2, leaf);
  if (left && right) return *left + *right;
  return left ? left : right;
}

}  // namespace trivet::kernels
