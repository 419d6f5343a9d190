#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/quantization_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

// Calls body.template operator()<T, kBits>() for the type of the values and the number of bits.
template <typename Body>
void dispatch_quantized(DType dtype, int bits, const Body& body) {
  dispatch_float(dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, double>) bits == 8 ? body.template operator()<T, 8>() : body.template operator()<T, 4>();
  });
}

template <typename Body>
void for_each_block_range(int64_t elements, int threads, const Body& body) {
  for_each_range(elements / kQuantizedBlock, threads, 1, kQuantizedBlock, body);
}

}  // namespace

void compute(const Quantize& args, int threads) {
  dispatch_quantized(args.x.dtype, args.bits, [&]<typename T, int kBits>() {
    const auto loop = by_isa(&baseline::quantize<T, kBits>, &v3::quantize<T, kBits>, &v4::quantize<T, kBits>);
    const T* x = args.x.as<T>();
    auto* packed = args.packed.as<uint8_t>();
    for_each_block_range(args.x.elements(), threads, [&](int64_t begin, int64_t end) {
      loop(x + begin * kQuantizedBlock, packed + begin * quantized_block_bytes(kBits), end - begin);
    });
  });
}

void compute(const Dequantize& args, int threads) {
  dispatch_quantized(args.out.dtype, args.bits, [&]<typename T, int kBits>() {
    const auto loop = args.accumulate ? by_isa(&baseline::dequantize<T, kBits, true>, &v3::dequantize<T, kBits, true>,
                                               &v4::dequantize<T, kBits, true>)
                                      : by_isa(&baseline::dequantize<T, kBits, false>, &v3::dequantize<T, kBits, false>,
                                               &v4::dequantize<T, kBits, false>);
    const auto* packed = args.packed.as<uint8_t>();
    T* out = args.out.as<T>();
    for_each_block_range(args.out.elements(), threads, [&](int64_t begin, int64_t end) {
      loop(packed + begin * quantized_block_bytes(kBits), out + begin * kQuantizedBlock, end - begin);
    });
  });
}

}  // namespace trivet::kernels::cpu
