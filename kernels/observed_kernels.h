// Kernels that report what they are asked to do. They pass every call on to other kernels, and tell an observer before and
// after it, along with everything that decides how long the call takes. With real kernels an observer can measure, with meta
// kernels it can predict.
#pragma once

#include <memory>

#include "kernels/interface.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

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
