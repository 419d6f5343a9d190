// Describes what decides how long a call of a kernel takes. The arguments of each kernel describe themselves (describe()), for
// planners, measurements and predictions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"
#include "core/enum_names.h"
#include "core/tensor_view.h"

namespace trivet::kernels {

enum class Bound : uint8_t { Unstated, Memory, Products, Attention };  // limit to its speed: memory or the matrix units
enum class Result : uint8_t { Other, InputGradient, WeightGradient };  // a layer's

struct KernelCall {
  std::string_view kernel;  // its name, in messages and profiles; lives as long as the program
  // For products: which operands are transposed ("nn", "nt", "tn", "tt"), "+" if they accumulate, "gelu" with an activation.
  // Other kernels have variants such as "sum" and "drops".
  std::string_view variant;
  DType dtype = DType::Float32;  // type of the main input
  // Products: M, N, K. Attention: B, S, N, G, D. Kernels on rows: rows, columns. Kernels on flat ranges: elements.
  std::array<int64_t, 5> sizes{};
  Bound bound = Bound::Unstated;
  Result result = Result::Other;
  // FLOPs: 2 M N K for a product; 4 S^2 N D B for attention, half of that if it is causal (half of the scores are masked), and
  // 2.5 times that for its backward; a few per element for the rest. Bytes: each argument counts once for every time it is read
  // or written.
  double flops = 0, bytes = 0;
};

// Checks whether the matrix units limit its speed, so that its FLOPs count. Throws std::logic_error for a kernel that
// does not say what limits it.
bool multiplies(const KernelCall& call);

}  // namespace trivet::kernels

namespace trivet {
template <>
struct EnumNames<kernels::Bound> {
  static constexpr std::array<std::pair<std::string_view, kernels::Bound>, 3> table{
      {{"memory", kernels::Bound::Memory}, {"products", kernels::Bound::Products}, {"attention", kernels::Bound::Attention}}};
};
}  // namespace trivet
