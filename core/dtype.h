// Element types. Float64 exists for gradient checks; Int64 carries fixed-point sums; Int32 carries token ids.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "core/enum_names.h"

namespace trivet {

enum class DType : uint8_t { Float32, BFloat16, Float16, Float64, Int64, Int32, UInt16, UInt8 };

template <>
struct EnumNames<DType> {
  static constexpr std::array<std::pair<std::string_view, DType>, 8> table{{{"float32", DType::Float32},
                                                                            {"bfloat16", DType::BFloat16},
                                                                            {"float16", DType::Float16},
                                                                            {"float64", DType::Float64},
                                                                            {"int64", DType::Int64},
                                                                            {"int32", DType::Int32},
                                                                            {"uint16", DType::UInt16},
                                                                            {"uint8", DType::UInt8}}};
};

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64: return 8;
    case DType::Float32:
    case DType::Int32: return 4;
    case DType::BFloat16:
    case DType::Float16:
    case DType::UInt16: return 2;
    case DType::UInt8: return 1;
  }
  return 0;
}

// The upper half of a float: 8 exponent bits, 7 mantissa bits. Rounds to nearest, ties to even; NaN stays NaN.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  bool operator==(const bfloat16&) const = default;

  static uint16_t round(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    return static_cast<uint16_t>(is_nan ? (word >> 16) | 0x40u : rounded >> 16);
  }
};

// IEEE half precision; the compiler does the conversions (with F16C where the CPU has it).
using float16 = _Float16;

template <typename T>
inline constexpr DType kDTypeOf = DType::Float32;
template <>
inline constexpr DType kDTypeOf<bfloat16> = DType::BFloat16;
template <>
inline constexpr DType kDTypeOf<float16> = DType::Float16;
template <>
inline constexpr DType kDTypeOf<double> = DType::Float64;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::Int64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::Int32;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::UInt16;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::UInt8;

constexpr bool is_float(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16 || dtype == DType::Float64;
}

// Statistics (means, log-sum-exps) and logits are float32, or float64 if the activations are.
constexpr DType statistics_dtype(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

// Calls body.operator()<T>() with the C++ type of `dtype`: dispatch_float(x.dtype, [&]<typename T>() { ... }).
template <typename Body>
decltype(auto) dispatch_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Float32: return body.template operator()<float>();
    case DType::BFloat16: return body.template operator()<bfloat16>();
    case DType::Float16: return body.template operator()<float16>();
    case DType::Float64: return body.template operator()<double>();
    default: throw std::logic_error("dispatch_float: not a floating-point type");
  }
}

}  // namespace trivet
