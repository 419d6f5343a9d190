// A tensor in host memory that a call returns, and that the caller then owns. Row-major, move-only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/tensor_view.h"

namespace trivet::hvd {

class Tensor {
 public:
  Tensor() = default;  // no elements
  Tensor(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape), bytes_(shape.elements() * size_of(dtype)) {}
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  TensorView view() { return {bytes_.data(), dtype_, shape_}; }
  ConstTensorView view() const { return {bytes_.data(), dtype_, shape_}; }
  // Throws std::logic_error if T is not the tensor's type.
  template <typename T>
  std::span<const T> as() const {
    return {view().template as<T>(), static_cast<size_t>(shape_.elements())};
  }

 private:
  DType dtype_ = DType::Float32;
  Shape shape_{0};
  std::vector<std::byte> bytes_;
};

}  // namespace trivet::hvd
