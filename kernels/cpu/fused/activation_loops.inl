#include "kernels/cpu/fused/numbers.inl"

// gelu(x) = x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh(u)) / 2 = sigmoid(2 u).
template <typename Sum>
inline Sum gelu_argument(Sum x) {
  return Sum(1.5957691216057308) * (x + Sum(0.044715) * x * x * x);
}

template <typename Sum>
inline Sum gelu_argument_slope(Sum x) {
  return Sum(1.5957691216057308) * (Sum(1) + Sum(0.134145) * x * x);
}

template <typename T>
void gelu(const T* x, T* y, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum value = read(x[e]);
    y[e] = write<T>(value / (Sum(1) + exponential(-gelu_argument(value))));
  }
}

// sigmoid(z) and sigmoid'(z) = sigmoid(z) (1 - sigmoid(z)), both without cancellation.
template <typename Sum>
struct Sigmoid {
  Sum value, slope;
};
template <typename Sum>
inline Sigmoid<Sum> sigmoid(Sum z) {
  const Sum small = exponential(z < 0 ? z : -z), whole = Sum(1) + small;
  return {(z < 0 ? small : Sum(1)) / whole, small / (whole * whole)};
}

template <typename T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum value = read(x[e]);
    const Sigmoid<Sum> gate = sigmoid(gelu_argument(value));
    dx[e] = write<T>(read(dy[e]) * (gate.value + value * gate.slope * gelu_argument_slope(value)));
  }
}

template <typename T>
void relu(const T* x, T* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const auto value = read(x[e]);
    y[e] = write<T>(value < 0 ? 0 : value);  // NaN is not less than 0
  }
}

template <typename T>
void relu_backward(const T* dy, const T* x, T* dx, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) dx[e] = write<T>(read(x[e]) > 0 ? Sum(read(dy[e])) : Sum(0));
}

template <typename T>
void soft_cap(const T* x, T* y, SumOf<T> cap, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) y[e] = write<T>(cap * hyperbolic_tangent(read(x[e]) / cap));
}

// The gate is x sigmoid(z) with z = x, or with the z of GELU.
template <typename T, bool kGelu>
void swiglu(const T* gate, const T* up, T* y, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum value = read(gate[e]), argument = kGelu ? gelu_argument(value) : value;
    y[e] = write<T>(value / (Sum(1) + exponential(-argument)) * read(up[e]));
  }
}

template <typename T, bool kGelu>
void swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum value = read(gate[e]), gradient = read(dy[e]), factor = read(up[e]);
    const Sigmoid<Sum> part = sigmoid(kGelu ? gelu_argument(value) : value);
    const Sum slope = kGelu ? part.slope * gelu_argument_slope(value) : part.slope;
    dgate[e] = write<T>(gradient * factor * (part.value + value * slope));
    dup[e] = write<T>(gradient * value * part.value);
  }
}
