// Tests kernels on the fake device: which threads run, what barriers and warps do, and which mistakes are reported.
#include "shim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/cuda/launch.h"
#include "core/error.h"

namespace trivet::shim_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Device memory of `count` elements, released at the end of the scope.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { CUDA_CHECK(cudaMalloc(&data_, count * sizeof(T))); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> host(count_);
    CUDA_CHECK(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// Runs a test with every order of threads that a configuration can choose.
class EveryOrder : public testing::TestWithParam<cuda_shim::Configuration> {
 protected:
  cuda_shim::Configured configured_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Shim, EveryOrder,
                         testing::Values(cuda_shim::Configuration{.order = cuda_shim::Order::InOrder},
                                         cuda_shim::Configuration{.order = cuda_shim::Order::Reversed},
                                         cuda_shim::Configuration{.order = cuda_shim::Order::Shuffled, .seed = 5}));

__global__ void write_place(int* out) {
  const int block = static_cast<int>((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
  const int thread = static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
  out[block * 30 + thread] = 1000 * block + thread;
}

TEST_P(EveryOrder, EveryThreadRunsInItsPlace) {
  DeviceArray<int> out(24 * 30);
  TRIVET_LAUNCH(write_place, dim3(2, 3, 4), dim3(5, 3, 2), 0, nullptr, out.data());
  const auto host = out.read();
  for (int i = 0; i < 24 * 30; ++i) EXPECT_EQ(host[i], 1000 * (i / 30) + i % 30);
}

__global__ void draw_number(int* next, int* numbers) { numbers[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1); }

// Returns, for each thread, how many threads ran before it.
std::vector<int> numbers_in(cuda_shim::Order order, uint32_t seed) {
  const cuda_shim::Configured configured({.order = order, .seed = seed});
  DeviceArray<int> next(1), numbers(128);
  CUDA_CHECK(cudaMemset(next.data(), 0, sizeof(int)));
  TRIVET_LAUNCH(draw_number, 2, 64, 0, nullptr, next.data(), numbers.data());
  return numbers.read();
}

TEST(Shim, ThreadsRunInTheOrderThatWasAskedFor) {
  std::vector<int> forward(128);
  std::iota(forward.begin(), forward.end(), 0);
  EXPECT_EQ(numbers_in(cuda_shim::Order::InOrder, 0), forward);
  EXPECT_EQ(numbers_in(cuda_shim::Order::Reversed, 0), std::vector<int>(forward.rbegin(), forward.rend()));
  const auto shuffled = numbers_in(cuda_shim::Order::Shuffled, 1);
  EXPECT_TRUE(std::is_permutation(shuffled.begin(), shuffled.end(), forward.begin()));
  EXPECT_NE(shuffled, forward);
  EXPECT_EQ(shuffled, numbers_in(cuda_shim::Order::Shuffled, 1));
  EXPECT_NE(shuffled, numbers_in(cuda_shim::Order::Shuffled, 2));
}

// Sums up a block by a tree in shared memory, both static and dynamic, whose size differs from launch to launch.
template <int kBlock>
__global__ void sum_block(const int* x, int* out) {
  TRIVET_DYNAMIC_SHARED(int, values);
  __shared__ int total;
  const int i = static_cast<int>(threadIdx.x);
  values[i] = x[blockIdx.x * kBlock + i];
  __syncthreads();
  for (int half = kBlock / 2; half > 0; half /= 2) {
    if (i < half) values[i] += values[i + half];
    __syncthreads();
  }
  if (i == 0) total = values[0];
  __syncthreads();
  if (i == kBlock - 1) out[blockIdx.x] = total;
}

TEST_P(EveryOrder, BarriersMakeSharedMemoryVisible) {
  std::vector<int> x(3 * 128);
  std::iota(x.begin(), x.end(), 0);
  DeviceArray<int> device(x.size()), sums(3);
  CUDA_CHECK(cudaMemcpy(device.data(), x.data(), x.size() * sizeof(int), cudaMemcpyHostToDevice));
  TRIVET_LAUNCH(sum_block<128>, 3, 128, 128 * sizeof(int), nullptr, device.data(), sums.data());
  for (int block = 0; block < 3; ++block)
    EXPECT_EQ(sums.read()[block], std::accumulate(x.begin() + block * 128, x.begin() + (block + 1) * 128, 0));
  TRIVET_LAUNCH(sum_block<64>, 1, 64, 64 * sizeof(int), nullptr, device.data(), sums.data());
  EXPECT_EQ(sums.read()[0], 63 * 64 / 2);
}

__global__ void use_warp(int* out) {
  const int i = static_cast<int>(threadIdx.x), lane = i % warpSize;
  int sum = i;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  int* row = out + i * 8;
  row[0] = sum;
  row[1] = __shfl_sync(0xffffffffu, i, 3);
  row[2] = __shfl_sync(0xffffffffu, i, 3, 8);
  row[3] = __shfl_down_sync(0xffffffffu, i, 1);
  row[4] = __shfl_up_sync(0xffffffffu, i, 2, 16);
  row[5] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  // Half a warp exchanges numbers on its own.
  row[6] = lane < 16 ? __shfl_xor_sync(0x0000ffffu, i, 15) : -1;
  row[7] = __any_sync(0xffffffffu, lane == 31) + 2 * __all_sync(0xffffffffu, lane < 31);
}

TEST_P(EveryOrder, WarpOperationsAreCudas) {
  DeviceArray<int> out(64 * 8);
  TRIVET_LAUNCH(use_warp, 1, 64, 0, nullptr, out.data());
  const auto host = out.read();
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32, warp = i - lane;
    const std::vector<int> row(host.begin() + i * 8, host.begin() + i * 8 + 8);
    EXPECT_THAT(row, testing::ElementsAre(warp * 32 + 31 * 16, warp + 3, warp + lane / 8 * 8 + 3, lane == 31 ? i : i + 1,
                                          lane % 16 < 2 ? i : i - 2, 0x49249249, lane < 16 ? warp + 15 - lane : -1, 1));
  }
}

__global__ void read_missing_lane(int* out) { out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 7, 16); }

TEST(Shim, LanesThatAreNotThereReadAsOnes) {
  DeviceArray<int> out(20);
  TRIVET_LAUNCH(read_missing_lane, 1, 20, 0, nullptr, out.data());
  EXPECT_EQ(out.read()[3], 7);
  EXPECT_EQ(out.read()[5], -1);
}

__global__ void named_halves(int* out) {
  __shared__ int value[2];
  const int half = static_cast<int>(threadIdx.x) / 64, i = static_cast<int>(threadIdx.x) % 64;
  for (int round = 0; round < 3; ++round) {
    if (i == round) value[half] = 10 * half + round;
    cuda_shim::named_barrier(1 + half, 64);
    out[threadIdx.x] = value[half];
    cuda_shim::named_barrier(1 + half, 64);
  }
}

TEST_P(EveryOrder, NamedBarriersHoldPartsOfABlock) {
  DeviceArray<int> out(128);
  TRIVET_LAUNCH(named_halves, 1, 128, 0, nullptr, out.data());
  EXPECT_EQ(out.read()[0], 2);
  EXPECT_EQ(out.read()[127], 12);
}

// Runs a faulty kernel and returns the report on it; the device works again afterwards.
template <typename... Arguments>
std::string report_of(void (*kernel)(Arguments...), int threads, Arguments... arguments) {
  const cuda_shim::Configured configured(cuda_shim::configuration());
  TRIVET_LAUNCH(kernel, 2, threads, 0, nullptr, arguments...);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  return cuda_shim::fault_report();
}

__global__ void barrier_of_some(int threads) {
  if (static_cast<int>(threadIdx.x) < threads) __syncthreads();
}
__global__ void barriers_apart() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncwarp();
    __syncwarp(0x0000ffffu << (threadIdx.x % 32 / 16 * 16));
    if (threadIdx.x == 40) __syncwarp();
    __syncthreads();
  }
}
__global__ void outside_the_mask() {
  if (threadIdx.x == 5) __shfl_sync(0x0fu, 1, 0);
}

TEST(Shim, ReportsDivergentBarriers) {
  EXPECT_THAT(report_of(barrier_of_some, 64, 16),
              AllOf(HasSubstr("block (0, 0, 0): divergent barrier"), HasSubstr("48 threads (first 16) have returned"),
                    HasSubstr("16 threads (first 0) wait at __syncthreads")));
  EXPECT_THAT(report_of(barriers_apart, 64), AllOf(HasSubstr("1 threads (first 40) wait at __syncwarp"),
                                                   HasSubstr("63 threads (first 0) wait at __syncthreads")));
  EXPECT_THAT(report_of(outside_the_mask, 32),
              HasSubstr("thread 5: a shuffle with mask 0x0000000f, which does not include its lane"));
}

TEST(Shim, RunsOnAfterAReport) {
  report_of(barrier_of_some, 64, 1);
  DeviceArray<int> out(24 * 30);
  TRIVET_LAUNCH(write_place, dim3(2, 3, 4), dim3(5, 3, 2), 0, nullptr, out.data());
  EXPECT_EQ(out.read()[31], 1001);
}

__global__ void nothing() {}

TEST(Shim, RefusesWhatNoGpuLaunches) {
  EXPECT_THROW(TRIVET_LAUNCH(nothing, 0, 32, 0, nullptr), DeviceError);
  EXPECT_THROW(TRIVET_LAUNCH(nothing, 1, 1025, 0, nullptr), DeviceError);
  EXPECT_THROW(TRIVET_LAUNCH(nothing, 1, dim3(2, 2, 65), 0, nullptr), DeviceError);
  EXPECT_THROW(TRIVET_LAUNCH(nothing, dim3(1, 65536), 32, 0, nullptr), DeviceError);
  EXPECT_THROW(TRIVET_LAUNCH(nothing, 1, 32, (48 << 10) + 1, nullptr), DeviceError);
  EXPECT_THROW(cuda::allow_dynamic_shared(nothing, (227 << 10) + 1), DeviceError);
  cuda::allow_dynamic_shared(nothing, 100 << 10);
  TRIVET_LAUNCH(nothing, 1, 32, 100 << 10, nullptr);
  EXPECT_THROW(TRIVET_LAUNCH(nothing, 1, 32, (100 << 10) + 1, nullptr), DeviceError);
  const cuda_shim::Configured ampere({.capability = 80});
  EXPECT_THROW(cuda::allow_dynamic_shared(nothing, 164 << 10), DeviceError);
}

}  // namespace
}  // namespace trivet::shim_test
