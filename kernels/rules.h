// Rules about types and shapes, by which arguments check themselves. They are the same on every device and read no data. A
// broken rule is a bug of the caller: std::logic_error with the kernel's name, the rule, and all types and shapes.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_view.h"

namespace trivet::kernels {

struct NamedView {
  const char* name;
  ConstTensorView view;
};

class Rules {
 public:
  Rules(const char* kernel, std::vector<NamedView> arguments) : kernel_(kernel), arguments_(std::move(arguments)) {}

  void require(bool holds, const char* rule) const {
    if (holds) return;
    std::string text = std::string(kernel_) + ": " + rule + ":";
    for (const NamedView& argument : arguments_)
      text +=
          std::string(" ") + argument.name + " " + std::string(name_of(argument.view.dtype)) + to_string(argument.view.shape);
    throw std::logic_error(text);
  }
  void floating(DType dtype) const { require(is_float(dtype), "the type must be floating-point"); }
  // All have the element type `dtype`.
  void types(DType dtype, std::initializer_list<ConstTensorView> views) const {
    for (const ConstTensorView& view : views) require(view.dtype == dtype, "types differ");
  }
  void shapes(const Shape& shape, std::initializer_list<ConstTensorView> views) const {
    for (const ConstTensorView& view : views) require(view.shape == shape, "shapes differ");
  }
  void sizes(int64_t elements, std::initializer_list<ConstTensorView> views) const {
    for (const ConstTensorView& view : views) require(view.elements() == elements, "numbers of elements do not match");
  }
  // The gradient of a parameter: the activations' type or float32.
  void parameter_gradient(DType activations, const ConstTensorView& view) const {
    require(view.dtype == activations || (view.dtype == DType::Float32 && activations != DType::Float64),
            "a gradient must have the activations' type or float32");
  }

 private:
  const char* kernel_;
  std::vector<NamedView> arguments_;
};

// `from` and `out` may be in different memories, one on the host and one on the device.
inline void check_host_copy(ConstTensorView from, ConstTensorView out) {
  const Rules rules("host copy", {{"from", from}, {"out", out}});
  rules.types(out.dtype, {from});
  rules.sizes(from.elements(), {out});
}

// The type of means, variances and log-sum-exps.
inline DType statistics_type(DType activations) { return activations == DType::Float64 ? DType::Float64 : DType::Float32; }

}  // namespace trivet::kernels
