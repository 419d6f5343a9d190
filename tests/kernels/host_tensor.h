// A tensor for tests: it owns its elements, has any float dtype, and is read and written as double.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "core/tensor_view.h"

namespace trivet::kernels {

class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, const Shape& shape) : bytes_(shape.elements() * size_of(dtype)), dtype_(dtype), shape_(shape) {}

  // Uniform in [-1, 1), rounded to dtype.
  static HostTensor random(DType dtype, const Shape& shape, uint64_t seed) {
    HostTensor tensor(dtype, shape);
    for (int64_t e = 0; e < shape.elements(); ++e)
      tensor.set(e, 2.0 * static_cast<double>(unit_float(philox(seed, static_cast<uint64_t>(e) / 4, 0)[e % 4])) - 1.0);
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

  TensorView view() { return {bytes_.data(), dtype_, shape_}; }
  ConstTensorView view() const { return {bytes_.data(), dtype_, shape_}; }
  int64_t elements() const { return shape_.elements(); }

  double at(int64_t element) const {
    return dispatch_float(dtype_, [&]<typename T>() {
      T value;
      std::memcpy(&value, bytes_.data() + element * static_cast<int64_t>(sizeof(T)), sizeof(T));
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
      std::memcpy(bytes_.data() + element * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    });
  }
  // True if both have the same bits.
  bool operator==(const HostTensor& other) const = default;

 private:
  std::vector<unsigned char> bytes_;
  DType dtype_ = DType::Float32;
  Shape shape_{0};
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
