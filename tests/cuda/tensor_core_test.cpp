// Tests each function of tensor_core.cuh against its definition in the PTX ISA. Run on a GPU, the tests show whether the fake
// device's functions do what the GPU's do.
#include "kernels/cuda/tensor_core.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/cuda/launch.h"
#include "tests/cuda/device_tensor.h"
#ifndef __CUDACC__
#include "shim.h"
#endif

namespace trivet::kernels::tensor_core_test {
namespace {

// out[16, 16] = a[16, 16] b, by one warp. b is stored as [16, 16] if it is transposed while it is loaded, otherwise as its
// transpose.
template <typename T>
__global__ void multiply(const T* a, const T* b, bool transpose_b, float* out) {
  TRIVET_DYNAMIC_SHARED(T, shared);
  const int lane = cuda::thread_index();
  for (int i = 0; i < 2; ++i) {  // 32 chunks of 8 numbers each
    const T* from = i == 0 ? a : b;
    cuda::cp_async_16(shared + i * 256 + lane * 8, from + lane * 8, true);
  }
  cuda::cp_async_commit();
  cuda::cp_async_wait<0>();
  __syncwarp();
  uint32_t left[4], right[4];
  cuda::ldmatrix_x4(left, shared + lane % 16 * 16 + lane / 16 * 8);
  if (transpose_b)
    cuda::ldmatrix_x4_trans(right, shared + 256 + lane % 16 * 16 + lane / 16 * 8);
  else
    cuda::ldmatrix_x4(right, shared + 256 + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
  for (int n = 0; n < 2; ++n) {
    float c[4] = {1, 1, 1, 1};
    cuda::mma_m16n8k16<T>(c, left, right[2 * n], right[2 * n + 1]);
    for (int e = 0; e < 4; ++e) out[(lane / 4 + e / 2 * 8) * 16 + n * 8 + lane % 4 * 2 + e % 2] = c[e] - 1;
  }
}

template <typename T>
void expect_products(DType dtype) {
  const HostTensor a = HostTensor::random(dtype, {16, 16}, 1), b = HostTensor::random(dtype, {16, 16}, 2);
  const DeviceTensor a_there(a), b_there(b), out(HostTensor::poisoned(DType::Float32, {16, 16}));
  for (bool transpose : {false, true}) {
    TRIVET_LAUNCH(multiply<T>, 1, 32, 1024, nullptr, static_cast<const T*>(a_there.view().data),
                  static_cast<const T*>(b_there.view().data), transpose, out.view().template as<float>());
    const HostTensor result = out.read();
    for (int row = 0; row < 16; ++row)
      for (int col = 0; col < 16; ++col) {
        double sum = 0;
        for (int k = 0; k < 16; ++k) sum += a.at(row * 16 + k) * b.at(transpose ? k * 16 + col : col * 16 + k);
        ASSERT_NEAR(result.at(row * 16 + col), sum, 16 * 0x1p-22) << row << " " << col << " " << transpose;
      }
  }
}

TEST(TensorCore, MultipliesBFloat16) { expect_products<__nv_bfloat16>(DType::BFloat16); }
TEST(TensorCore, MultipliesFloat16) { expect_products<__half>(DType::Float16); }

__global__ void round_pairs(const float* x, uint32_t* out) {
  const int i = cuda::thread_index();
  out[2 * i] = cuda::pack_pair<__nv_bfloat16>(x[2 * i], x[2 * i + 1]);
  out[2 * i + 1] = cuda::pack_pair<__half>(x[2 * i], x[2 * i + 1]);
}

TEST(TensorCore, PairsAreRoundedToNearestEvenFirstInTheLowerHalf) {
  HostTensor x(DType::Float32, {64});
  const double numbers[] = {1, -2, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 0x1p-25, 0x1.8p-24, 65504, INFINITY};
  for (int i = 0; i < 64; ++i) x.set(i, i < 8 ? numbers[i] : 0.001 * i);
  const DeviceTensor x_there(x), out(HostTensor::poisoned(DType::Float32, {64}));
  TRIVET_LAUNCH(round_pairs, 1, 32, 0, nullptr, x_there.view().as<float>(), static_cast<uint32_t*>(out.view().data));
  const HostTensor pairs = out.read();
  for (int i = 0; i < 32; ++i) {
    const auto* words = static_cast<const uint32_t*>(pairs.view().data) + 2 * i;
    for (int half = 0; half < 2; ++half) {
      const float number = static_cast<float>(x.at(2 * i + half));
      EXPECT_EQ(words[0] >> 16 * half & 0xffff, bfloat16(number).bits);
      EXPECT_EQ(words[1] >> 16 * half & 0xffff, std::bit_cast<uint16_t>(static_cast<float16>(number)));
    }
  }
}

__global__ void raise(const float* x, float* out) {
  out[cuda::thread_index()] = cuda::exp2_approximate(x[cuda::thread_index()]);
}

TEST(TensorCore, PowersOfTwoAreAccurateAndFlushToZero) {
  HostTensor x(DType::Float32, {256});
  for (int i = 0; i < 253; ++i) x.set(i, i - 125.37);
  x.set(253, -INFINITY), x.set(254, -127), x.set(255, NAN);
  const DeviceTensor x_there(x), out(HostTensor::poisoned(DType::Float32, {256}));
  TRIVET_LAUNCH(raise, 1, 256, 0, nullptr, x_there.view().as<float>(), out.view().as<float>());
  const HostTensor powers = out.read();
  for (int i = 0; i < 253; ++i) EXPECT_NEAR(powers.at(i) / std::exp2(x.at(i)), 1, 0x1p-21) << i;
  EXPECT_EQ(powers.at(253), 0);
  EXPECT_EQ(powers.at(254), 0);
  EXPECT_TRUE(std::isnan(powers.at(255)));
}

__global__ void copy_some(const float* from, int count, float* out) {
  TRIVET_DYNAMIC_SHARED(float, shared);
  const int i = cuda::thread_index();
  cuda::cp_async_16(shared + 4 * i, from + 4 * i, i < count);
  cuda::cp_async_commit();
  cuda::cp_async_wait<0>();
  for (int e = 4 * i; e < 4 * i + 4; ++e) out[e] = shared[e];
}

TEST(TensorCore, CopiesOfWhatIsNotValidAreZeros) {
  const HostTensor from = HostTensor::random(DType::Float32, {128}, 3);
  const DeviceTensor from_there(from), out(HostTensor::poisoned(DType::Float32, {128}));
  TRIVET_LAUNCH(copy_some, 1, 32, 512, nullptr, from_there.view().as<float>(), 20, out.view().as<float>());
  const HostTensor copied = out.read();
  for (int e = 0; e < 128; ++e) EXPECT_EQ(copied.at(e), e < 80 ? from.at(e) : 0);
}

#ifndef __CUDACC__

enum class Mistake { None, WaitsForTooLittle, NeverWaits, Misaligned, OutsideSharedMemory };

__global__ void copy_with(Mistake mistake, const float* from, float* out) {
  TRIVET_DYNAMIC_SHARED(float, shared);
  cuda::cp_async_16(shared + (mistake == Mistake::Misaligned            ? 1
                              : mistake == Mistake::OutsideSharedMemory ? 8
                                                                        : 0),
                    from, true);
  cuda::cp_async_commit();
  cuda::cp_async_16(shared + 4, from + 4, true);
  cuda::cp_async_commit();
  if (mistake == Mistake::WaitsForTooLittle)
    cuda::cp_async_wait<1>();
  else if (mistake != Mistake::NeverWaits)
    cuda::cp_async_wait<0>();
  for (int e = 0; e < 8; ++e) out[e] = shared[e];
  cuda::cp_async_wait<1>();
  if (mistake != Mistake::NeverWaits) cuda::cp_async_wait<0>();
}

class MistakenCopy {
 public:
  explicit MistakenCopy(Mistake mistake) : out_(HostTensor::filled(DType::Float32, {8}, 0)) {
    const DeviceTensor from(HostTensor::filled(DType::Float32, {8}, 7));
    TRIVET_LAUNCH(copy_with, 1, 1, 32, nullptr, mistake, from.view().as<float>(), out_.view().as<float>());
    cudaDeviceSynchronize();
    report = cuda_shim::fault_report();
    cuda_shim::configure(cuda_shim::configuration());
    copied = out_.read();
  }
  HostTensor copied;
  std::string report;

 private:
  DeviceTensor out_;
};

TEST(TensorCore, TheFakeDeviceFindsMistakesInCopies) {
  EXPECT_EQ(MistakenCopy(Mistake::None).report, "");
  const MistakenCopy too_little(Mistake::WaitsForTooLittle);
  EXPECT_EQ(too_little.copied.at(0), 7);
  EXPECT_TRUE(std::isnan(too_little.copied.at(4)));
  EXPECT_NE(MistakenCopy(Mistake::NeverWaits).report.find("ended without having waited for 1 groups of cp.async"),
            std::string::npos);
  EXPECT_NE(MistakenCopy(Mistake::Misaligned).report.find("is not aligned to 16 bytes"), std::string::npos);
  EXPECT_NE(MistakenCopy(Mistake::OutsideSharedMemory).report.find("is not in the block's dynamic shared memory"),
            std::string::npos);
}

#endif

}  // namespace
}  // namespace trivet::kernels::tensor_core_test
