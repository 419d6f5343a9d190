// Argument checks of the optimizers and of the kernels on flat ranges.
#include "kernels/check.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

// The gradient has 16 or 32 bits; states are float32 and have as many elements; copy_out is absent or of a float type.
void check_optimizer(const char* kernel, ConstTensorView gradient, std::initializer_list<NamedView> states,
                     ConstTensorView copy_out, ConstTensorView verdict) {
  std::vector<NamedView> all{{"gradient", gradient}, {"copy_out", copy_out}, {"verdict", verdict}};
  all.insert(all.end(), states.begin(), states.end());
  const Rules rules(kernel, all);
  rules.floating(gradient.dtype);
  rules.require(gradient.dtype != DType::Float64, "gradients must be float32, bfloat16 or float16");
  for (const NamedView& state : states) {
    rules.types(DType::Float32, {state.view});
    rules.sizes(gradient.elements(), {state.view});
  }
  if (!verdict.absent()) {
    rules.types(DType::Float64, {verdict});
    rules.sizes(3, {verdict});
  }
  if (copy_out.absent()) return;
  rules.floating(copy_out.dtype);
  rules.sizes(gradient.elements(), {copy_out});
}

}  // namespace

void check(const Adam& args) {
  check_optimizer("adam", args.gradient, {{"master", args.master}, {"moment1", args.moment1}, {"moment2", args.moment2}},
                  args.copy_out, args.verdict);
}

void check(const Sgd& args) {
  if (args.momentum_buffer.absent())
    return check_optimizer("sgd", args.gradient, {{"master", args.master}}, args.copy_out, args.verdict);
  check_optimizer("sgd", args.gradient, {{"master", args.master}, {"momentum_buffer", args.momentum_buffer}}, args.copy_out,
                  args.verdict);
}

void check(const Lion& args) {
  check_optimizer("lion", args.gradient, {{"master", args.master}, {"moment", args.moment}}, args.copy_out, args.verdict);
}

void check(const Adagrad& args) {
  check_optimizer("adagrad", args.gradient, {{"master", args.master}, {"sum_of_squares", args.sum_of_squares}}, args.copy_out,
                  args.verdict);
}

void check(const LambUpdate& args) {
  check_optimizer("lamb_update", args.gradient,
                  {{"master", args.master}, {"moment1", args.moment1}, {"moment2", args.moment2}, {"update", args.update}}, {},
                  args.verdict);
}

void check(const ApplyUpdate& args) {
  check_optimizer("apply_update", args.update, {{"master", args.master}}, args.copy_out, args.verdict);
  if (args.square_sums.absent()) return;
  const Rules rules("apply_update", {{"square_sums", args.square_sums}});
  rules.types(DType::Int64, {args.square_sums});
  rules.sizes(2 * ExactSum::kWords, {args.square_sums});
}

void check(const MomentumUpdate& args) {
  check_optimizer("momentum_update", args.gradient, {{"momentum_buffer", args.momentum_buffer}, {"out", args.out}}, {},
                  args.verdict);
}

void check(const JudgeGradients& args) {
  const Rules rules("judge_gradients", {{"square_sum", args.square_sum}, {"losses", args.losses}, {"verdict", args.verdict}});
  rules.types(DType::Int64, {args.square_sum, args.losses});
  rules.types(DType::Float64, {args.verdict});
  rules.sizes(ExactSum::kWords, {args.square_sum});
  rules.sizes(ExactSum::kWords + 1, {args.losses});
  rules.sizes(3, {args.verdict});
}

void check(const SumLosses& args) {
  const Rules rules("sum_losses", {{"losses", args.losses}, {"words", args.words}});
  rules.types(DType::Float64, {args.losses});
  rules.types(DType::Int64, {args.words});
  rules.sizes(ExactSum::kWords + 1, {args.words});
  rules.require(args.losses.elements() % 2 == 0, "losses must be pairs: a loss and its number of targets");
}

namespace {

void check_quantized(const char* kernel, ConstTensorView x, ConstTensorView values, ConstTensorView scales, int bits,
                     int64_t block) {
  const Rules rules(kernel, {{"x", x}, {"values", values}, {"scales", scales}});
  rules.floating(x.dtype);
  rules.types(DType::UInt8, {values});
  rules.types(DType::Float32, {scales});
  rules.require(bits == 8 || bits == 4, "values must have 8 or 4 bits");
  rules.require(block >= 64 && block <= 2048 && block % 64 == 0,
                "the number of elements of a block must be a multiple of 64, from 64 to 2048");
  rules.sizes(bits == 8 ? x.elements() : (x.elements() + 1) / 2, {values});
  rules.sizes((x.elements() + block - 1) / block, {scales});
}

}  // namespace

void check(const Quantize& args) { check_quantized("quantize", args.x, args.values, args.scales, args.bits, args.block); }
void check(const Dequantize& args) { check_quantized("dequantize", args.out, args.values, args.scales, args.bits, args.block); }

void check_float(const char* kernel, ConstTensorView x) { Rules(kernel, {{"x", x}}).floating(x.dtype); }

void check_sum_of_squares(ConstTensorView x, ConstTensorView sum) {
  const Rules rules("sum_of_squares", {{"x", x}, {"sum", sum}});
  rules.floating(x.dtype);
  rules.types(DType::Int64, {sum});
  rules.sizes(ExactSum::kWords, {sum});
}

void check(const Squares& term, ConstTensorView sum) {
  check_sum_of_squares(term.x, sum);
  const bool divides = term.block > 0 && kSumBlock % term.block == 0;
  Rules("sum_of_squares", {{"x", term.x}}).require(divides, "block must be given, and must divide kSumBlock");
}

void check_refused(const char* kernel, ConstTensorView refused) {
  const Rules rules(kernel, {{"refused", refused}});
  rules.types(DType::Int64, {refused});
  rules.sizes(1, {refused});
}

void check_host_copy(ConstTensorView from, ConstTensorView out) {
  const Rules rules("host copy", {{"from", from}, {"out", out}});
  rules.types(out.dtype, {from});
  rules.sizes(from.elements(), {out});
}

void check_copy(ConstTensorView from, ConstTensorView out) {
  const Rules rules("copy", {{"from", from}, {"out", out}});
  rules.sizes(from.elements(), {out});
  rules.require(from.dtype == out.dtype || (is_float(from.dtype) && is_float(out.dtype)),
                "only floating-point types can be converted");
}

void check_add(ConstTensorView from, ConstTensorView out) {
  const Rules rules("add", {{"from", from}, {"out", out}});
  rules.sizes(from.elements(), {out});
  rules.types(out.dtype, {from});
  rules.require(is_float(out.dtype) || out.dtype == DType::Int64, "the type must be floating-point or int64");
}

void check_fixed_point(const char* kernel, ConstTensorView values, ConstTensorView sum) {
  const Rules rules(kernel, {{"values", values}, {"sum", sum}});
  rules.floating(values.dtype);
  rules.types(DType::Int64, {sum});
  rules.sizes(values.elements(), {sum});
}

void check_fixed_point_round(ConstTensorView x, ConstTensorView out) {
  const Rules rules("fixed_point_round", {{"x", x}, {"out", out}});
  rules.floating(x.dtype);
  rules.floating(out.dtype);
  rules.sizes(x.elements(), {out});
}

}  // namespace trivet::kernels
