// Loops compiled for several instruction sets in one binary, and the choice between them at run time.
//
// A family of loops is plain C++ in a `*_loops.inl` without includes, which the compiler vectorises. Its .cpp includes all
// headers first, then the loops once per level, and calls the one for this processor:
//
//   #define TRIVET_LOOPS "kernels/cpu/fused/activation_loops.inl"
//   #include "kernels/cpu/for_each_isa.inl"          // -> namespaces baseline, v3, v4, each with its own copy
//   ...
//   const auto loop = by_isa(&baseline::gelu<T>, &v3::gelu<T>, &v4::gelu<T>);
//
// In an .inl, use neither std templates nor inline functions of headers on a hot path: they are compiled for the baseline. Use
// neither lambdas nor OpenMP: the pragma that sets the target does not reach them. The copies have internal linkage, so that no
// AVX-512 code can replace a baseline function of another translation unit. `#pragma GCC ivdep` says that an output may be the
// same memory as an input, element by element, but does not overlap one in any other way; without it, an in-place call would
// run the scalar loop.
#pragma once

#include <cstdint>

namespace trivet::kernels::cpu {

// Baseline is the x86-64 that the compiler is set up for. V3 adds AVX2, FMA and F16C; V4 adds AVX-512 F, BW, CD, DQ and VL.
// Other processors have only the baseline.
enum class Isa : uint8_t { Baseline, V3, V4 };

// The best level that this processor has and the binary was compiled for.
Isa best_isa();
// The level in use: the best one, unless a test has forced a lower one.
Isa current_isa();

template <typename Function>
Function* by_isa(Function* baseline, Function* v3, Function* v4) {
  const Isa isa = current_isa();
  return isa == Isa::V4 ? v4 : isa == Isa::V3 ? v3 : baseline;
}

// Forces, for tests, `isa` (or the best one, if that is lower) on the whole process while this object exists.
class ForcedIsa {
 public:
  explicit ForcedIsa(Isa isa);
  ~ForcedIsa();
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;

 private:
  Isa previous_;
};

}  // namespace trivet::kernels::cpu
