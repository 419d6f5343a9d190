// A number that may be another one in the next step: a learning rate, a loss scale, the number of the step.
//
// Kernels of the host use value(). A device may have the number in its memory, too, and its kernels then read it there when
// they run: so the same launch, captured once (docs/cuda.md, "Graphs"), works with another value in each step. Nothing is
// computed with a Number but a quotient, because what is made of its value would no longer change: whoever needs it says
// value().
#pragma once

#include <stdexcept>

namespace trivet {

struct Number {
  double base = 0, divisor = 1;
  const double* on_device = nullptr;  // where the device has `base`; null: it has not

  constexpr Number(double value = 0) : base(value) {}
  constexpr Number(double value, const double* device_memory) : base(value), on_device(device_memory) {}

  double value() const { return base / divisor; }
};

// Of a number that is not a quotient itself: two divisors round differently from their product.
inline Number operator/(Number number, double divisor) {
  if (number.divisor != 1) throw std::logic_error("number: is divided a second time; divide by the product of both");
  number.divisor = divisor;
  return number;
}

}  // namespace trivet
