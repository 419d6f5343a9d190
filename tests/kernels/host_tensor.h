// A tensor for tests: it owns its elements, has any float dtype, and is read and written as double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <optional>
#include <random>
#include <vector>

#include "core/random.h"
#include "core/tensor_view.h"

namespace trivet::kernels {

class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, const Shape& shape)
      : dtype_(dtype),
        shape_(shape),
        offset_(shape.elements() > 0 && is_float(dtype) ? next_offset() * size_of(dtype) : 0),
        bytes_(offset_ + shape.elements() * size_of(dtype)) {}

  // Uniform in [-1, 1), rounded to dtype.
  static HostTensor random(DType dtype, const Shape& shape, uint64_t seed) {
    HostTensor tensor(dtype, shape);
    PhiloxBlock draws{};
    for (int64_t e = 0; e < shape.elements(); ++e) {
      if (e % 4 == 0) draws = philox(seed, static_cast<uint64_t>(e) / 4, 0);
      tensor.set(e, 2.0 * static_cast<double>(unit_float(draws[e % 4])) - 1.0);
    }
    return tensor;
  }
  static HostTensor filled(DType dtype, const Shape& shape, double value) {
    HostTensor tensor(dtype, shape);
    for (int64_t e = 0; e < shape.elements(); ++e) tensor.set(e, value);
    return tensor;
  }
  // Filled with NaN, so that an element that is read before it is written, or never written, shows.
  static HostTensor poisoned(DType dtype, const Shape& shape) {
    return filled(dtype, shape, std::numeric_limits<double>::quiet_NaN());
  }

  TensorView view() { return {bytes_.data() + offset_, dtype_, shape_}; }
  ConstTensorView view() const { return {bytes_.data() + offset_, dtype_, shape_}; }
  int64_t elements() const { return shape_.elements(); }

  double at(int64_t element) const {
    return dispatch_float(dtype_, [&]<typename T>() {
      T value;
      std::memcpy(&value, bytes_.data() + offset_ + element * static_cast<int64_t>(sizeof(T)), sizeof(T));
      if constexpr (std::is_same_v<T, double>)
        return value;
      else
        return static_cast<double>(static_cast<float>(value));
    });
  }
  void set(int64_t element, double number) {
    dispatch_float(dtype_, [&]<typename T>() {
      T value;
      if constexpr (std::is_same_v<T, double>)
        value = number;
      else
        value = static_cast<T>(static_cast<float>(number));
      std::memcpy(bytes_.data() + offset_ + element * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    });
  }
  // True if both have the same bits.
  bool operator==(const HostTensor& other) const {
    return dtype_ == other.dtype_ && shape_ == other.shape_ &&
           std::equal(bytes_.begin() + offset_, bytes_.end(), other.bytes_.begin() + other.offset_, other.bytes_.end());
  }
  // True if both have the same bits, except that the bits of a NaN do not count.
  bool same_values(const HostTensor& other) const {
    if (*this == other) return true;
    if (!is_float(dtype_) || dtype_ != other.dtype_ || shape_ != other.shape_) return false;
    for (int64_t e = 0; e < elements(); ++e) {
      const double here = at(e), there = other.at(e);
      const bool same = std::isnan(here) ? std::isnan(there) : here == there && std::signbit(here) == std::signbit(there);
      if (!same) return false;
    }
    return true;
  }

  // If set, tensors of numbers begin 0, 1, 2 or 4 elements after an aligned address.
  static inline std::optional<std::minstd_rand> offsets;

 private:
  static int64_t next_offset() { return offsets ? (int64_t{1} << (*offsets)() % 4) / 2 : 0; }

  DType dtype_ = DType::Float32;
  Shape shape_{0};
  int64_t offset_ = 0;  // in bytes
  std::pmr::vector<unsigned char> bytes_;
};

// Half a unit in the last place of a value of magnitude 1: the relative error of one rounding.
inline double half_unit(DType dtype) {
  switch (dtype) {
    case DType::Float64: return 0x1p-53;
    case DType::Float32: return 0x1p-24;
    case DType::Float16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

}  // namespace trivet::kernels
