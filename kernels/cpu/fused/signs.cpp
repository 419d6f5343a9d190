#include "kernels/signs.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"

#define TRIVET_LOOPS "kernels/cpu/fused/signs_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

template <typename Body>
void for_each_sign_block_range(int64_t elements, int threads, const Body& body) {
  for_each_range(elements / kQuantizedBlock, threads, 1, kQuantizedBlock, body);
}

}  // namespace

void compute(const PackSigns& args, int threads) {
  const auto loop = by_isa(&baseline::pack_signs, &v3::pack_signs, &v4::pack_signs);
  auto* const values = args.values.as<float>();
  const auto* const variance = args.variance.as<float>();
  auto* const packed = args.packed.as<uint8_t>();
  for_each_sign_block_range(args.values.elements(), threads, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kQuantizedBlock;
    loop(values + first, variance + first, packed + begin * kSignBlockBytes, end - begin);
  });
}

void compute(const UnpackSigns& args, int threads) {
  const auto loop = args.accumulate
                        ? by_isa(&baseline::unpack_signs<true>, &v3::unpack_signs<true>, &v4::unpack_signs<true>)
                        : by_isa(&baseline::unpack_signs<false>, &v3::unpack_signs<false>, &v4::unpack_signs<false>);
  const auto* const packed = args.packed.as<uint8_t>();
  const auto* const variance = args.variance.as<float>();
  auto* const out = args.out.as<float>();
  for_each_sign_block_range(args.out.elements(), threads, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kQuantizedBlock;
    loop(packed + begin * kSignBlockBytes, variance + first, static_cast<float>(args.weight), out + first, end - begin);
  });
}

}  // namespace trivet::kernels::cpu
