#include "kernels/kernel_call.h"

#include <fmt/format.h>

#include <stdexcept>

namespace trivet::kernels {

bool multiplies(const KernelCall& call) {
  if (call.bound == Bound::Unstated)
    throw std::logic_error(fmt::format("kernel {} does not say what limits its speed (KernelCall::bound)", call.kernel));
  return call.bound != Bound::Memory;
}

}  // namespace trivet::kernels
