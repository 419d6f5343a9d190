// Includes the file TRIVET_LOOPS once for each instruction set, whose registers have TRIVET_REGISTER_BYTES. See
// kernels/cpu/isa.h.
#define TRIVET_REGISTER_BYTES 16
namespace trivet::kernels::cpu::baseline {
namespace {
#include TRIVET_LOOPS
}
}  // namespace trivet::kernels::cpu::baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#undef TRIVET_REGISTER_BYTES
#define TRIVET_REGISTER_BYTES 32
namespace trivet::kernels::cpu::v3 {
namespace {
#include TRIVET_LOOPS
}
}  // namespace trivet::kernels::cpu::v3
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#undef TRIVET_REGISTER_BYTES
#define TRIVET_REGISTER_BYTES 64
namespace trivet::kernels::cpu::v4 {
namespace {
#include TRIVET_LOOPS
}
}  // namespace trivet::kernels::cpu::v4
#pragma GCC pop_options

#else

namespace trivet::kernels::cpu {
namespace v3 = baseline;
namespace v4 = baseline;
}  // namespace trivet::kernels::cpu

#endif
#undef TRIVET_REGISTER_BYTES
#undef TRIVET_LOOPS
