#include "kernels/cpu/isa.h"

#include <algorithm>
#include <atomic>

namespace trivet::kernels::cpu {
namespace {

Isa detect() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return Isa::V4;
  if (__builtin_cpu_supports("x86-64-v3")) return Isa::V3;
#endif
  return Isa::Baseline;
}

std::atomic<Isa>& level() {
  static std::atomic<Isa> isa{best_isa()};
  return isa;
}

}  // namespace

Isa best_isa() {
  static const Isa best = detect();
  return best;
}

Isa current_isa() { return level().load(std::memory_order_relaxed); }

ForcedIsa::ForcedIsa(Isa isa) : previous_(level().exchange(std::min(isa, best_isa()))) {}
ForcedIsa::~ForcedIsa() { level().store(previous_); }

}  // namespace trivet::kernels::cpu
