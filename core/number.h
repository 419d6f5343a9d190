// A scalar that may change from step to step: a learning rate, a loss scale, the number of the step.
//
// Host kernels use value(). A device may also keep the number in its own memory; its kernels then read it there when they run,
// so that a launch that was captured once (docs/cuda.md, "Graphs") works with a different value in each step. The only
// arithmetic on a Number is a quotient, because a result computed from its value would no longer change with it: code that
// needs the plain value calls value().
#pragma once

#include <stdexcept>

namespace trivet {

struct Number {
  double base = 0, divisor = 1;
  const double* on_device = nullptr;  // device address of `base`; null: not on the device

  constexpr Number(double value = 0) : base(value) {}
  constexpr Number(double value, const double* device_memory) : base(value), on_device(device_memory) {}

  double value() const { return base / divisor; }
};

// `number` must not be a quotient already: dividing by two divisors rounds differently from dividing by their product.
inline Number operator/(Number number, double divisor) {
  if (number.divisor != 1) throw std::logic_error("number: divided a second time; divide once, by the product of both");
  number.divisor = divisor;
  return number;
}

}  // namespace trivet
