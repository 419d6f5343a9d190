#include "kernels/cpu/attention_pairs.h"

#include "kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,avx512bf16,prefer-vector-width=512")
namespace trivet::kernels::cpu::pairs {
namespace {
#define TRIVET_REGISTER_BYTES 64
#include "kernels/cpu/attention_pairs.inl"
#undef TRIVET_REGISTER_BYTES
}  // namespace
}  // namespace trivet::kernels::cpu::pairs
#pragma GCC pop_options

namespace trivet::kernels::cpu {

const AttentionPairLoops* attention_pair_loops() {
  static const bool multiplies_pairs = best_isa() == Isa::V4 && __builtin_cpu_supports("avx512bf16");
  return multiplies_pairs && current_isa() == Isa::V4 ? &pairs::kPairLoops : nullptr;
}

}  // namespace trivet::kernels::cpu

#else

namespace trivet::kernels::cpu {

const AttentionPairLoops* attention_pair_loops() { return nullptr; }

}  // namespace trivet::kernels::cpu

#endif
