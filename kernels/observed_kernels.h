// Kernels that say what they are asked to do: around each call of another object's kernels an observer is told, before and
// behind it, with what decides how long it takes. Over real kernels it measures, over meta kernels it predicts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/kernels.h"

namespace trivet::kernels {

struct KernelCall {
  std::string_view kernel;  // as Kernels names it; lives as long as the program
  // Of products, which operands are transposed ("nn", "nt", "tn", "tt"), "+" where out is added to, "gelu" with an activation.
  std::string_view variant;
  DType dtype = DType::Float32;  // of what is read most
  // Products: M, N, K. Attention: B, S, N, G, D. Of rows: rows, columns. Of flat ranges: elements.
  std::array<int64_t, 5> sizes{};
  double flops = 0, bytes = 0;  // as the meta kernels count them

  bool same_kind(const KernelCall& other) const {
    return kernel == other.kernel && variant == other.variant && dtype == other.dtype;
  }
};

class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Of products only, before begins(): all of the arguments. Their views are as the caller's.
  virtual void asked(const Matmul&) {}
  virtual void begins() {}
  virtual void ended(const KernelCall& call) = 0;
};

// Both must outlive it. Copies between host and device are passed on and not told.
std::unique_ptr<Kernels> make_observed_kernels(Kernels& inner, KernelObserver& observer);

}  // namespace trivet::kernels
