#include "kernels/interface.h"

#include "core/error.h"
#include "kernels/kernels.h"

namespace trivet::kernels {

void Kernels::adam(const Adam& one) { adam(std::span(&one, 1)); }
void Kernels::adam(std::span<const Adam> updates) {
  const AdamUpdates a{updates};
  run(&a);
}
void Kernels::zero(TensorView out) {
  const Zero a{out};
  run(&a);
}
void Kernels::copy(ConstTensorView from, TensorView out) {
  const Copy a{from, out};
  run(&a);
}
void Kernels::add(ConstTensorView from, TensorView out) {
  const Add a{from, out};
  run(&a);
}
void Kernels::transpose(ConstTensorView from, TensorView out) {
  const Transpose a{from, out};
  run(&a);
}
void Kernels::scale(TensorView out, double factor) {
  const Scale a{out, factor};
  run(&a);
}
void Kernels::initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element) {
  const Initialize a{out, init, key, first_element};
  run(&a);
}
void Kernels::sum_of_squares(std::span<const Squares> terms, TensorView sum) {
  const SumOfSquares a{terms, sum};
  run(&a);
}
void Kernels::sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum) {
  const Squares one{x, scale, block};
  sum_of_squares(std::span(&one, 1), sum);
}
void Kernels::divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon) {
  const DivideByNorm a{out, square_sum, epsilon};
  run(&a);
}
void Kernels::fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) {
  const FixedPointAdd a{x, scale, limit, sum, refused};
  run(&a);
}
void Kernels::fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) {
  const FixedPointStore a{x, scale, limit, sum, refused};
  run(&a);
}
void Kernels::fixed_point_read(ConstTensorView sum, TensorView out) {
  const FixedPointRead a{sum, out};
  run(&a);
}
void Kernels::fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused) {
  const FixedPointRound a{x, scale, limit, out, refused};
  run(&a);
}
void Kernels::quantize(ConstTensorView x, TensorView packed, int bits) {
  const Quantize a{x, packed, bits};
  run(&a);
}
void Kernels::dequantize(ConstTensorView packed, TensorView out, int bits, bool accumulate) {
  const Dequantize a{packed, out, bits, accumulate};
  run(&a);
}

}  // namespace trivet::kernels
