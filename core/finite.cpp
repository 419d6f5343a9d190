#include "core/finite.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace trivet {
namespace {

// A number is not finite exactly when all bits of its exponent are set.
template <typename Bits>
int64_t first_with_full_exponent(const void* data, int64_t count, Bits exponent) {
  constexpr int64_t kChunk = 4096;  // without a branch, so that the compiler can use vectors
  const auto* const bits = static_cast<const Bits*>(data);
  for (int64_t done = 0; done < count; done += kChunk) {
    const Bits* const chunk = bits + done;
    const int64_t length = std::min(kChunk, count - done);
    unsigned found = 0;
    for (int64_t i = 0; i < length; ++i) found |= static_cast<unsigned>((chunk[i] & exponent) == exponent);
    if (found == 0) continue;
    return done + (std::find_if(chunk, chunk + length, [&](Bits b) { return (b & exponent) == exponent; }) - chunk);
  }
  return -1;
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

double value_at(ConstTensorView data, int64_t element) {
  const double value = dispatch_float(data.dtype, [&]<typename T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return static_cast<double>(static_cast<Wide>(data.as<T>()[element]));
  });
  return std::isnan(value) ? std::abs(value) : value;
}

}  // namespace trivet
