#include "kernels/elementwise.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

void check_dropout(const Rules& rules, const DropoutSite& site, ConstTensorView x) {
  rules.require(site.rate >= 0 && site.rate < 1, "the dropout rate must be in [0, 1)");
  rules.require(x.shape.dims() >= 1, "a tensor of samples needs at least one dim");
}

void DropoutAdd::check() const {
  const Rules rules("dropout_add", {{"x", x}, {"residual", residual}, {"out", out}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {out});
  rules.shapes(x.shape, {out});
  check_dropout(rules, dropout, x);
  if (residual.absent()) return;
  rules.types(x.dtype, {residual});
  rules.shapes(x.shape, {residual});
}

KernelCall DropoutAdd::describe() const {
  return {.kernel = "dropout_add",
          .variant = dropout.rate > 0 ? "drops" : "",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = 2 * elements(x),
          .bytes = total_bytes({x, residual, out})};
}

void DropoutBackward::check() const {
  const Rules rules("dropout_backward", {{"dy", dy}, {"dx", dx}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {dx});
  rules.shapes(dy.shape, {dx});
  check_dropout(rules, dropout, dy);
}

KernelCall DropoutBackward::describe() const {
  return {.kernel = "dropout_backward",
          .dtype = dy.dtype,
          .sizes = elements_of(dy),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = elements(dy),
          .bytes = total_bytes({dy, dx})};
}

void Gelu::check() const {
  const Rules rules("gelu", {{"x", x}, {"y", y}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {y});
  rules.shapes(x.shape, {y});
}

KernelCall Gelu::describe() const {
  return {.kernel = "gelu",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = 8 * elements(x),
          .bytes = total_bytes({x, y})};
}

void GeluBackward::check() const {
  const Rules rules("gelu_backward", {{"dy", dy}, {"x", x}, {"dx", dx}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {dy, dx});
  rules.shapes(x.shape, {dy, dx});
}

KernelCall GeluBackward::describe() const {
  return {.kernel = "gelu_backward",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 14 * elements(x),
          .bytes = total_bytes({dy, x, dx})};
}

void Relu::check() const {
  const Rules rules("relu", {{"x", x}, {"y", y}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {y});
  rules.shapes(x.shape, {y});
}

KernelCall Relu::describe() const {
  return {.kernel = "relu",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = elements(x),
          .bytes = total_bytes({x, y})};
}

void ReluBackward::check() const {
  const Rules rules("relu_backward", {{"dy", dy}, {"x", x}, {"dx", dx}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {dy, dx});
  rules.shapes(x.shape, {dy, dx});
}

KernelCall ReluBackward::describe() const {
  return {.kernel = "relu_backward",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = elements(x),
          .bytes = total_bytes({dy, x, dx})};
}

void SoftCap::check() const {
  const Rules rules("soft_cap", {{"x", x}, {"y", y}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {y});
  rules.shapes(x.shape, {y});
  rules.require(cap > 0, "the cap must be positive");
}

KernelCall SoftCap::describe() const {
  return {.kernel = "soft_cap",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = 8 * elements(x),
          .bytes = total_bytes({x, y})};
}

void SwiGlu::check() const {
  const Rules rules("swiglu", {{"gate_up", gate_up}, {"y", y}});
  rules.floating(y.dtype);
  rules.types(y.dtype, {gate_up});
  rules.require(gate_up.shape.cols() == 2 * y.shape.cols(), "gate_up must be twice as wide as y");
  rules.sizes(2 * y.elements(), {gate_up});
}

KernelCall SwiGlu::describe() const {
  return {.kernel = "swiglu",
          .variant = gelu ? "gelu" : "",
          .dtype = y.dtype,
          .sizes = rows_of(y),
          .bound = Bound::Memory,
          .flops = 4 * elements(y),
          .bytes = total_bytes({gate_up, y})};
}

void SwiGluBackward::check() const {
  const Rules rules("swiglu_backward", {{"dy", dy}, {"gate_up", gate_up}, {"dgate_up", dgate_up}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {gate_up, dgate_up});
  rules.shapes(gate_up.shape, {dgate_up});
  rules.require(gate_up.shape.cols() == 2 * dy.shape.cols(), "gate_up must be twice as wide as dy");
  rules.sizes(2 * dy.elements(), {gate_up});
}

KernelCall SwiGluBackward::describe() const {
  return {.kernel = "swiglu_backward",
          .variant = gelu ? "gelu" : "",
          .dtype = dy.dtype,
          .sizes = rows_of(dy),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 10 * elements(dy),
          .bytes = total_bytes({dy, gate_up, dgate_up})};
}

}  // namespace trivet::kernels
