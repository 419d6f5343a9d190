#include "kernels/interface.h"

#include "core/error.h"
#include "kernels/kernels.h"

namespace trivet::kernels {
namespace {

template <typename Arguments>
void call(Kernels& kernels, const Arguments& arguments) {
  kernels.run(&arguments);
}

}  // namespace

void Kernels::adam(const Adam& one) { adam(std::span(&one, 1)); }
void Kernels::adam(std::span<const Adam> updates) { call(*this, AdamUpdates{updates}); }
void Kernels::zero(TensorView out) { call(*this, Zero{out}); }
void Kernels::copy(ConstTensorView from, TensorView out) { call(*this, Copy{from, out}); }
void Kernels::add(ConstTensorView from, TensorView out) { call(*this, Add{from, out}); }
void Kernels::transpose(ConstTensorView from, TensorView out) { call(*this, Transpose{from, out}); }
void Kernels::scale(TensorView out, double factor) { call(*this, Scale{out, factor}); }
void Kernels::initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element) {
  call(*this, Initialize{out, init, key, first_element});
}
void Kernels::sum_of_squares(std::span<const Squares> terms, TensorView sum) { call(*this, SumOfSquares{terms, sum}); }
void Kernels::sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum) {
  const Squares one{x, scale, block};
  sum_of_squares(std::span(&one, 1), sum);
}
void Kernels::divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon) {
  call(*this, DivideByNorm{out, square_sum, epsilon});
}
void Kernels::fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) {
  call(*this, FixedPointAdd{x, scale, limit, sum, refused});
}
void Kernels::fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) {
  call(*this, FixedPointStore{x, scale, limit, sum, refused});
}
void Kernels::fixed_point_read(ConstTensorView sum, TensorView out) { call(*this, FixedPointRead{sum, out}); }
void Kernels::fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused) {
  call(*this, FixedPointRound{x, scale, limit, out, refused});
}
void Kernels::quantize(ConstTensorView x, TensorView packed, int bits) { call(*this, Quantize{x, packed, bits}); }
void Kernels::dequantize(ConstTensorView packed, TensorView out, int bits, bool accumulate) {
  call(*this, Dequantize{packed, out, bits, accumulate});
}

}  // namespace trivet::kernels
