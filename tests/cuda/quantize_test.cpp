#include "tests/cuda/twins.h"

namespace trivet::kernels {
namespace {

Twin bytes_of(int64_t count, int64_t elements_before) {
  HostTensor bytes(DType::UInt8, {count});
  if (count > 0) std::memset(bytes.view().data, 0xee, static_cast<size_t>(count));
  return Twin(bytes, elements_before);
}

void expect_the_cpus(DType dtype, int bits, int64_t block, int64_t size, int64_t offset) {
  HostTensor numbers = HostTensor::random(dtype, {size}, 1);
  if (size > 70) numbers.set(70, NAN);
  if (size > 3 * block)
    for (int64_t e = 2 * block; e < 3 * block; ++e) numbers.set(e, 0);
  Twin x(numbers, offset), values = bytes_of(bits == 8 ? size : (size + 1) / 2, offset);
  Twin scales = Twin::poisoned(DType::Float32, {(size + block - 1) / block});
  const auto there = [&](const auto& view) {
    return Quantize{.x = view(x), .values = view(values), .scales = view(scales), .bits = bits, .block = block};
  };
  run_twins<Quantize>(there);
  const std::string what = text(dtype) + " " + std::to_string(bits) + " bits, " + std::to_string(size);
  values.expect_same_bits("values " + what);
  scales.expect_near("scales " + what, 0, 0);
  for (const bool accumulate : {false, true}) {
    Twin out = Twin::random(dtype, {size}, 2, offset);
    const auto back = [&](const auto& view) {
      return Dequantize{.values = view(values),
                        .scales = view(scales),
                        .out = view(out),
                        .bits = bits,
                        .block = block,
                        .accumulate = accumulate};
    };
    run_twins<Dequantize>(back);
    out.expect_near("dequantize " + what, 0, 0);
  }
}

TEST(CudaQuantize, HasTheCpusBits) {
  for (const int bits : {8, 4}) {
    for (const DType dtype : kFloatTypes) {
      expect_the_cpus(dtype, bits, 64, 0, 0);
      expect_the_cpus(dtype, bits, 64, 1, 0);
      expect_the_cpus(dtype, bits, 64, 1001, 1);
    }
    for (const int64_t block : {64, 384, 256, 2048}) expect_the_cpus(DType::BFloat16, bits, block, 3001, 0);
    expect_the_cpus(DType::Float32, bits, 256, 2048, 0);
  }
}

TEST(CudaQuantize, BlocksHaveNoOrder) {
  in_every_order([] { expect_the_cpus(DType::BFloat16, 4, 128, 5001, 0); });
}

}  // namespace
}  // namespace trivet::kernels
