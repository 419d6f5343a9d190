#include "hvd/convert.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace trivet::hvd {
namespace {

// The type in which an element is read before it is rounded.
template <typename T>
using Readable = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename To>
To rounded(double value) {
  if constexpr (std::is_same_v<To, double>)
    return value;
  else
    return static_cast<To>(static_cast<float>(value));
}

template <typename From, typename To>
void convert_elements(const From* from, To* to, int64_t count, Scale scale) {
  if (scale.none())
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<To>(static_cast<Readable<To>>(static_cast<Readable<From>>(from[i])));
  else
    for (int64_t i = 0; i < count; ++i)
      to[i] = rounded<To>(static_cast<Readable<From>>(from[i]) * scale.factor / scale.divisor);
}

template <typename T>
T neutral_float(ReduceOp op) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float value = op == ReduceOp::Product ? 1 : op == ReduceOp::Min ? kInfinity : op == ReduceOp::Max ? -kInfinity : 0;
  return static_cast<T>(value);
}

template <typename T>
T neutral_integer(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  return op == ReduceOp::Product ? T{1} : op == ReduceOp::Min ? Limits::max() : op == ReduceOp::Max ? Limits::min() : T{0};
}

}  // namespace

void convert(ConstTensorView from, TensorView to, Scale scale) {
  if (from.elements() != to.elements()) throw std::logic_error("hvd: convert between tensors of different sizes");
  const bool copy = from.dtype == to.dtype && scale.none();
  if (from.elements() == 0 || (copy && from.data == to.data)) return;
  if (copy) {
    std::memmove(to.data, from.data, from.bytes());
    return;
  }
  dispatch_float(from.dtype, [&]<typename From>() {
    dispatch_float(to.dtype, [&]<typename To>() { convert_elements(from.as<From>(), to.as<To>(), from.elements(), scale); });
  });
}

void fill_neutral(TensorView to, ReduceOp op) {
  if (to.dtype == DType::Int64) {
    std::fill_n(to.as<int64_t>(), to.elements(), neutral_integer<int64_t>(op));
  } else if (to.dtype == DType::Int32) {
    std::fill_n(to.as<int32_t>(), to.elements(), neutral_integer<int32_t>(op));
  } else {
    dispatch_float(to.dtype, [&]<typename T>() { std::fill_n(to.as<T>(), to.elements(), neutral_float<T>(op)); });
  }
}

}  // namespace trivet::hvd
