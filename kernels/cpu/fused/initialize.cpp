// Initial values are computed in double and without vector code: they are drawn once, and must be the same on every machine.
#include <cmath>
#include <numbers>

#include "core/random.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

namespace trivet::kernels::cpu {
namespace {

#include "kernels/cpu/fused/numbers.inl"

// Four independent standard normal numbers (Box & Muller 1958): words (0, 1) give values 0 and 1, words (2, 3) give values 2
// and 3.
std::array<double, 4> normals(const PhiloxBlock& words) {
  std::array<double, 4> values;
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(words[pair]) + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * (static_cast<double>(words[pair + 1]) * 0x1p-32);
    values[pair] = radius * std::cos(angle);
    values[pair + 1] = radius * std::sin(angle);
  }
  return values;
}

std::array<double, 4> block_values(const Init& init, uint64_t key, uint64_t block) {
  std::array<double, 4> values{};
  if (init.kind == Init::Kind::Zeros) return values;
  if (init.kind == Init::Kind::Ones) return {1, 1, 1, 1};
  const PhiloxBlock words = philox(key, block, 0);
  if (init.kind == Init::Kind::Normal) values = normals(words);
  if (init.kind == Init::Kind::Uniform)
    for (size_t i = 0; i < 4; ++i) values[i] = 2.0 * static_cast<double>(unit_float(words[i])) - 1.0;
  for (double& value : values) value *= init.scale;
  return values;
}

}  // namespace

void compute(const Initialize& args, int threads) {
  dispatch_float(args.out.dtype, [&]<typename T>() {
    T* data = args.out.as<T>();
    for_each_element_range(args.out.elements(), threads, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end;) {
        const int64_t element = args.first_element + e, in_block = element % 4;
        const std::array<double, 4> values = block_values(args.init, args.key, static_cast<uint64_t>(element / 4));
        for (int64_t i = in_block; i < 4 && e < end; ++i, ++e) data[e] = write<T>(values[i]);
      }
    });
  });
}

}  // namespace trivet::kernels::cpu
