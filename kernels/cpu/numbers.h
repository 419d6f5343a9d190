// Conversions between the types in which values are stored and those in which they are summed (float32, or float64 for
// float64).
#pragma once

#include <type_traits>

#include "core/dtype.h"

namespace trivet::kernels::cpu {

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Exact.
template <typename Sum, typename T>
inline Sum widen(T value) {
  if constexpr (std::is_same_v<T, double>)
    return static_cast<Sum>(value);
  else
    return static_cast<Sum>(static_cast<float>(value));
}

// Rounded to nearest even.
template <typename T, typename Sum>
inline T narrow(Sum value) {
  if constexpr (std::is_same_v<T, double>)
    return static_cast<T>(value);
  else
    return static_cast<T>(static_cast<float>(value));
}

}  // namespace trivet::kernels::cpu
