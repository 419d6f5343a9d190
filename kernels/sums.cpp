#include "kernels/sums.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

void check_sum_of_squares(ConstTensorView x, ConstTensorView sum) {
  const Rules rules("sum_of_squares", {{"x", x}, {"sum", sum}});
  rules.floating(x.dtype);
  rules.types(DType::Int64, {sum});
  rules.sizes(ExactSum::kWords, {sum});
}

void check_refused(const char* kernel, ConstTensorView refused) {
  const Rules rules(kernel, {{"refused", refused}});
  rules.types(DType::Int64, {refused});
  rules.sizes(1, {refused});
}

void check_fixed_point(const char* kernel, ConstTensorView values, ConstTensorView sum) {
  const Rules rules(kernel, {{"values", values}, {"sum", sum}});
  rules.floating(values.dtype);
  rules.types(DType::Int64, {sum});
  rules.sizes(values.elements(), {sum});
}

}  // namespace

void SumOfSquares::check() const {
  for (const Squares& term : terms) {
    check_sum_of_squares(term.x, sum);
    const bool divides = term.block > 0 && kSumBlock % term.block == 0;
    Rules("sum_of_squares", {{"x", term.x}}).require(divides, "block must be given, and must divide kSumBlock");
  }
}

KernelCall SumOfSquares::describe() const {
  KernelCall call{
      .kernel = "sum_of_squares", .dtype = terms.empty() ? DType::Float32 : terms.front().x.dtype, .bound = Bound::Memory};
  for (const Squares& term : terms) {
    call.sizes[0] += term.x.elements();
    call.flops += 2 * elements(term.x);
    call.bytes += total_bytes({term.x});
  }
  return call;
}

void DivideByNorm::check() const { check_sum_of_squares(out, square_sum); }

KernelCall DivideByNorm::describe() const {
  return {.kernel = "divide_by_norm",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = written(out, true)};
}

void FixedPointAdd::check() const {
  check_fixed_point("fixed_point_add", x, sum);
  check_refused("fixed_point_add", refused);
}

KernelCall FixedPointAdd::describe() const {
  return {.kernel = "fixed_point_add",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = 2 * elements(x),
          .bytes = total_bytes({x}) + written(sum, true)};
}

void FixedPointStore::check() const {
  check_fixed_point("fixed_point_store", x, sum);
  check_refused("fixed_point_store", refused);
}

KernelCall FixedPointStore::describe() const {
  return {.kernel = "fixed_point_store",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = elements(x),
          .bytes = total_bytes({x}) + written(sum, false)};
}

void FixedPointRead::check() const { check_fixed_point("fixed_point_read", out, sum); }

KernelCall FixedPointRead::describe() const {
  return {.kernel = "fixed_point_read",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = total_bytes({sum, out})};
}

void FixedPointRound::check() const {
  const Rules rules("fixed_point_round", {{"x", x}, {"out", out}});
  rules.floating(x.dtype);
  rules.floating(out.dtype);
  rules.sizes(x.elements(), {out});
  check_refused("fixed_point_round", refused);
}

KernelCall FixedPointRound::describe() const {
  return {.kernel = "fixed_point_round",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = elements(x),
          .bytes = total_bytes({x, out})};
}

}  // namespace trivet::kernels
