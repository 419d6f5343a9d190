// A dense row-major tensor that somebody else owns. Passed by value; a ConstTensorView cannot write. as<T>() throws Error
// (Usage) if T is not the type of the elements.
//
// On Device::Meta, `data` is null and there are only shapes. An empty view (dtype and shape default, data null) means "absent".
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"

namespace trivet {

[[noreturn]] inline void refuse_type(DType is, DType asked) {
  throw Error(ExitCode::Usage, "as<T>(): the tensor is of " + std::string(name_of(is)) + ", not of " +
                                   std::string(name_of(asked)) + "; look at its dtype first");
}

struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::Float32;
  Shape shape{0};

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype); }
  bool absent() const { return data == nullptr && elements() == 0; }

  template <typename T>
  const T* as() const {
    if (kDTypeOf<T> != dtype) refuse_type(dtype, kDTypeOf<T>);
    return static_cast<const T*>(data);
  }
  // Returns the same elements under another shape.
  ConstTensorView reshaped(const Shape& other) const {
    if (other.elements() != elements())
      throw std::logic_error("tensor view: " + to_string(shape) + " does not reshape to " + to_string(other));
    return {data, dtype, other};
  }
  // Elements [first, first + count) of the flattened tensor.
  ConstTensorView slice(int64_t first, int64_t count) const {
    return {data ? static_cast<const std::byte*>(data) + first * size_of(dtype) : nullptr, dtype, Shape{count}};
  }
  // Rows [first, first + count) of the tensor seen as [rows, cols].
  ConstTensorView row_range(int64_t first, int64_t count) const {
    return slice(first * shape.cols(), count * shape.cols()).reshaped({count, shape.cols()});
  }
};

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::Float32;
  Shape shape{0};

  operator ConstTensorView() const { return {data, dtype, shape}; }

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype); }
  bool absent() const { return data == nullptr && elements() == 0; }

  template <typename T>
  T* as() const {
    if (kDTypeOf<T> != dtype) refuse_type(dtype, kDTypeOf<T>);
    return static_cast<T*>(data);
  }
  TensorView reshaped(const Shape& other) const {
    if (other.elements() != elements())
      throw std::logic_error("tensor view: " + to_string(shape) + " does not reshape to " + to_string(other));
    return {data, dtype, other};
  }
  TensorView slice(int64_t first, int64_t count) const {
    return {data ? static_cast<std::byte*>(data) + first * size_of(dtype) : nullptr, dtype, Shape{count}};
  }
  TensorView row_range(int64_t first, int64_t count) const {
    return slice(first * shape.cols(), count * shape.cols()).reshaped({count, shape.cols()});
  }
};

// Views a tensor as rows of its last dim.
inline ConstTensorView as_rows(ConstTensorView view) { return view.reshaped({view.shape.rows(), view.shape.cols()}); }
inline TensorView as_rows(TensorView view) { return view.reshaped({view.shape.rows(), view.shape.cols()}); }

}  // namespace trivet
