#include "kernels/quantize.h"

#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/quantize_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

// body(index of the block, first element, count)
template <typename Body>
void for_each_block(int64_t elements, int64_t block, int threads, const Body& body) {
  for_each_range((elements + block - 1) / block, threads, 1, block, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) body(index, index * block, std::min(block, elements - index * block));
  });
}

}  // namespace

void compute(const Quantize& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto largest = by_isa(&baseline::largest_magnitude<T>, &v3::largest_magnitude<T>, &v4::largest_magnitude<T>);
    const auto to_bytes = by_isa(&baseline::quantize_to_bytes<T>, &v3::quantize_to_bytes<T>, &v4::quantize_to_bytes<T>);
    const auto to_halves = by_isa(&baseline::quantize_to_halves<T>, &v3::quantize_to_halves<T>, &v4::quantize_to_halves<T>);
    const T* x = args.x.as<T>();
    for_each_block(args.x.elements(), args.block, threads, [&](int64_t index, int64_t first, int64_t count) {
      const float scale = scale_of_block(largest(x + first, count), largest_quantized(args.bits));
      args.scales.as<float>()[index] = scale;
      uint8_t* values = args.values.as<uint8_t>();
      if (args.bits == 8)
        to_bytes(x + first, scale, values + first, count);
      else
        to_halves(x + first, scale, values + first / 2, count);
    });
  });
}

void compute(const Dequantize& args, int threads) {
  dispatch_float(args.out.dtype, [&]<typename T>() {
    const auto bytes = by_isa(&baseline::dequantize_bytes<T>, &v3::dequantize_bytes<T>, &v4::dequantize_bytes<T>);
    const auto halves = by_isa(&baseline::dequantize_halves<T>, &v3::dequantize_halves<T>, &v4::dequantize_halves<T>);
    T* out = args.out.as<T>();
    for_each_block(args.out.elements(), args.block, threads, [&](int64_t index, int64_t first, int64_t count) {
      const float scale = args.scales.as<float>()[index];
      const uint8_t* values = args.values.as<uint8_t>();
      if (args.bits == 8)
        bytes(values + first, scale, args.accumulate, out + first, count);
      else
        halves(values + first / 2, scale, args.accumulate, out + first, count);
    });
  });
}

}  // namespace trivet::kernels::cpu
