// Kernels that report what they are asked to do. They pass every call on to other kernels, and tell an observer before and
// after it, along with everything that decides how long the call takes. With real kernels an observer can measure, with meta
// kernels it can predict.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/kernels.h"

namespace trivet::kernels {

struct KernelCall {
  std::string_view kernel;  // the name of the function of Kernels; lives as long as the program
  // For products: which operands are transposed ("nn", "nt", "tn", "tt"), "+" if they accumulate, "gelu" with an activation.
  // Other kernels have variants such as "sum", "drops" or the bits of quantisation.
  std::string_view variant;
  DType dtype = DType::Float32;  // of the main input
  // Products: M, N, K. Attention: B, S, N, G, D. Kernels on rows: rows, columns. Kernels on flat ranges: elements.
  std::array<int64_t, 5> sizes{};
  double flops = 0, bytes = 0;  // as the meta kernels count them

  bool same_kind(const KernelCall& other) const {
    return kernel == other.kernel && variant == other.variant && dtype == other.dtype;
  }
};

class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Called for products only, before begins(), with all arguments. The views are the caller's.
  virtual void asked(const Matmul&) {}
  virtual void begins() {}
  virtual void ended(const KernelCall& call) = 0;
};

// Both arguments must outlive the result. Copies between host and device are passed on without telling the observer.
std::unique_ptr<Kernels> make_observed_kernels(Kernels& inner, KernelObserver& observer);

}  // namespace trivet::kernels
