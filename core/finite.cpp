#include "core/finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

namespace trivet {
namespace {

// Index of the first element for whose bits `is_bad` is true; -1 if there is none.
template <typename Bits, typename IsBad>
int64_t first_where(const void* data, int64_t count, IsBad is_bad) {
  constexpr int64_t kChunk = 4096;  // checked without a branch, so that the compiler can vectorize
  const auto* const bits = static_cast<const Bits*>(data);
  for (int64_t done = 0; done < count; done += kChunk) {
    const Bits* const chunk = bits + done;
    const int64_t length = std::min(kChunk, count - done);
    unsigned found = 0;
    for (int64_t i = 0; i < length; ++i) found |= static_cast<unsigned>(is_bad(chunk[i]));
    if (found == 0) continue;
    return done + (std::find_if(chunk, chunk + length, is_bad) - chunk);
  }
  return -1;
}

// A number is not finite exactly when all bits of its exponent are set.
template <typename Bits>
int64_t first_with_full_exponent(const void* data, int64_t count, Bits exponent) {
  return first_where<Bits>(data, count, [=](Bits bits) { return (bits & exponent) == exponent; });
}

// The bits of magnitudes, read as integers, have the same order as the numbers, and NaN is above all of them.
int64_t first_at_least(ConstTensorView data, float magnitude) {
  const auto least = std::bit_cast<uint32_t>(magnitude);
  return first_where<uint32_t>(data.data, data.elements(), [=](uint32_t bits) { return (bits & 0x7fffffffu) >= least; });
}

}  // namespace

int64_t first_not_finite(ConstTensorView data) {
  switch (data.dtype) {
    case DType::Float32: return first_with_full_exponent<uint32_t>(data.data, data.elements(), 0x7f800000u);
    case DType::BFloat16: return first_with_full_exponent<uint16_t>(data.data, data.elements(), 0x7f80u);
    case DType::Float16: return first_with_full_exponent<uint16_t>(data.data, data.elements(), 0x7c00u);
    case DType::Float64: return first_with_full_exponent<uint64_t>(data.data, data.elements(), 0x7ff0000000000000u);
    default: return -1;
  }
}

// Rounding up to infinity begins half a unit above the largest number: 65504 and (2 - 2^-7) 2^127.
int64_t first_not_finite(ConstTensorView data, DType used_as) {
  if (data.dtype == DType::Float32 && used_as == DType::Float16) return first_at_least(data, 65520.0f);
  if (data.dtype == DType::Float32 && used_as == DType::BFloat16) return first_at_least(data, 0x1.ffp127f);
  return first_not_finite(data);
}

std::string not_finite_value(ConstTensorView data, int64_t element, DType used_as) {
  const double value = value_at(data, element);
  return std::isfinite(value) ? fmt::format("{:.6g}, infinite in {}", value, name_of(used_as)) : fmt::format("{}", value);
}

double value_at(ConstTensorView data, int64_t element) {
  const double value = dispatch_float(data.dtype, [&]<typename T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return static_cast<double>(static_cast<Wide>(data.as<T>()[element]));
  });
  return std::isnan(value) ? std::abs(value) : value;
}

}  // namespace trivet
