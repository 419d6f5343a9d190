// Sizes of a tensor's dims, outermost first. At most kMaxDims; a value type without allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

namespace trivet {

class Shape {
 public:
  static constexpr int kMaxDims = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : count_(static_cast<int>(dims.size())) {
    if (count_ > kMaxDims) throw std::logic_error("shape: more than " + std::to_string(kMaxDims) + " dims");
    for (int i = 0; i < count_; ++i) dims_[i] = dims[i];
  }

  int dims() const { return count_; }
  int64_t operator[](int dim) const { return dims_[dim < 0 ? dim + count_ : dim]; }
  int64_t& operator[](int dim) { return dims_[dim < 0 ? dim + count_ : dim]; }
  std::span<const int64_t> span() const { return {dims_.data(), static_cast<size_t>(count_)}; }

  // Product of all dims; 1 for a scalar.
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < count_; ++i) product *= dims_[i];
    return product;
  }
  // The shape seen as a matrix [rows, cols]: cols is the last dim, rows the product of all others.
  int64_t cols() const { return count_ == 0 ? 1 : dims_[count_ - 1]; }
  int64_t rows() const { return cols() == 0 ? 0 : elements() / cols(); }

  bool operator==(const Shape& other) const {
    if (count_ != other.count_) return false;
    for (int i = 0; i < count_; ++i)
      if (dims_[i] != other.dims_[i]) return false;
    return true;
  }

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int count_ = 0;
};

// "[2, 3]"
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.dims(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace trivet
