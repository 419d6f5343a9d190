#include "core/cuda/memory.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "core/cuda/error.h"
#include "core/cuda/launch.h"
#include "core/error.h"
#include "shim.h"
#include "tests/cuda/gate.h"

namespace trivet::cuda::memory_test {
namespace {

using testing::HasSubstr;

std::vector<unsigned char> read(const void* data, size_t bytes) {
  std::vector<unsigned char> host(bytes);
  CUDA_CHECK(cudaMemcpy(host.data(), data, bytes, cudaMemcpyDeviceToHost));
  return host;
}

TEST(DeviceMemory, ReadsAsZeroAndIsAligned) {
  const auto allocator = make_device_allocator(0);
  EXPECT_EQ(allocator->device(), Device::Cuda);
  for (const int64_t bytes : {1, 255, 4097}) {
    void* data = allocator->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
    EXPECT_EQ(read(data, static_cast<size_t>(bytes)), std::vector<unsigned char>(bytes, 0));
    allocator->release(data, bytes);
  }
  EXPECT_EQ(cuda_shim::allocated_bytes(), 0);
}

// Trivet's streams do not wait for the default stream, which writes the zeros.
TEST(DeviceMemory, IsZeroBeforeAnyStreamCanUseIt) {
  const auto allocator = make_device_allocator(0);
  Gate gate(nullptr);
  std::atomic<bool> opened = false;
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    opened = true;
    gate.open();
  });
  void* data = allocator->allocate(16);
  EXPECT_TRUE(opened);
  opener.join();
  allocator->release(data, 16);
}

TEST(DeviceMemory, NothingIsNoMemory) {
  const auto allocator = make_device_allocator(0);
  EXPECT_EQ(allocator->allocate(0), nullptr);
  allocator->release(nullptr, 0);
}

TEST(DeviceMemory, HoldsArenasAndIsReleasedWithThem) {
  const auto allocator = make_device_allocator(0);
  MemoryMeter meter;
  {
    Arena arena("activations", *allocator, meter, MemoryCategory::Activations, 1 << 16);
    EXPECT_GE(cuda_shim::allocated_bytes(), 1 << 16);
    const TensorView view = arena.allocate(DType::Float32, {100});
    cudaPointerAttributes attributes{};
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, view.data));
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  }
  EXPECT_EQ(cuda_shim::allocated_bytes(), 0);
}

TEST(DeviceMemory, RunningOutNamesWhatWasAskedForAndWhatIsThere) {
  const cuda_shim::Configured small({.memory_bytes = int64_t{8} << 20});
  const auto allocator = make_device_allocator(0);
  void* first = allocator->allocate(int64_t{6} << 20);
  try {
    allocator->allocate(int64_t{4} << 30);
    FAIL() << "4 GiB were allocated of 8 MiB";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::OutOfMemory);
    EXPECT_STREQ(error.what(),
                 "cuda:0: out of memory: requested 4.00 GiB (4294967296 bytes), 0.00 of 0.01 GiB are free; use a smaller "
                 "micro-batch, recomputation, a higher ZeRO stage or offload");
  }
  // No error stays recorded, and no memory stays allocated.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  allocator->release(first, int64_t{6} << 20);
  allocator->release(allocator->allocate(int64_t{7} << 20), int64_t{7} << 20);
}

TEST(DeviceMemory, IsOfTheDeviceThatWasAskedFor) {
  const cuda_shim::Configured two({.devices = 2});
  const auto allocator = make_device_allocator(1);
  void* data = allocator->allocate(100);
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
  EXPECT_EQ(attributes.device, 1);
  int device = -1;
  CUDA_CHECK(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  allocator->release(data, 100);
}

TEST(PinnedMemory, ReadsAsZeroOnTheHostAndIsKnownToTheDevice) {
  const auto allocator = make_pinned_allocator(0);
  EXPECT_EQ(allocator->device(), Device::Cpu);
  const auto* data = static_cast<unsigned char*>(allocator->allocate(1000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
  EXPECT_TRUE(std::all_of(data, data + 1000, [](unsigned char byte) { return byte == 0; }));
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  allocator->release(const_cast<unsigned char*>(data), 1000);
}

TEST(PinnedMemory, RunningOutNamesWhatWasAskedForAndWhatIsThere) {
  const cuda_shim::Configured small({.pinned_bytes = int64_t{8} << 20});
  const auto allocator = make_pinned_allocator(0);
  try {
    allocator->allocate(int64_t{3} << 29);
    FAIL() << "1.5 GiB were allocated of 8 MiB";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::OutOfMemory);
    EXPECT_THAT(error.what(),
                testing::MatchesRegex("pinned host memory: the system refused to allocate 1.50 GiB \\(1610612736 bytes\\), "
                                      "[0-9.]+ GiB of host memory are free; offload less, .*"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr(" 0.00 GiB")));
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// The tests below check what the fake device does so that mistakes show.

TEST(ShimMemory, ReadsAsNanUntilItIsWritten) {
  float* data = nullptr;
  CUDA_CHECK(cudaMalloc(&data, sizeof(float)));
  float value = 0;
  CUDA_CHECK(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
  EXPECT_TRUE(std::isnan(value));
  CUDA_CHECK(cudaFree(data));
}

TEST(ShimMemory, CopiesAreCheckedAgainstWhatWasAllocated) {
  char *device = nullptr, host[64] = {};
  CUDA_CHECK(cudaMalloc(&device, 32));
  EXPECT_EQ(cudaMemcpy(device, host, 33, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, device + 16, 17, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, host, 32, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host, 0, 64), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, host, 32, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(ShimMemoryDeathTest, OnlyStreamsMayAccessProtectedMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const cuda_shim::Configured configured({.protect = true});
  char* data = nullptr;
  CUDA_CHECK(cudaMalloc(&data, 30));
  CUDA_CHECK(cudaMemset(data, 1, 30));
  EXPECT_EQ(read(data, 30), std::vector<unsigned char>(30, 1));
  EXPECT_DEATH(*static_cast<volatile char*>(data + 3) = 2, "");
  EXPECT_EQ(read(data, 30), std::vector<unsigned char>(30, 1));
  CUDA_CHECK(cudaFree(data));
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void write_behind(char* data) { data[30 + threadIdx.x] = 1; }

TEST(ShimMemoryDeathTest, AccessesBesideAnAllocationAreReportedWhereTheyAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        char* data = nullptr;
        CUDA_CHECK(cudaMalloc(&data, 30));
        TRIVET_LAUNCH(write_behind, 1, 1, 0, nullptr, data);
        cudaDeviceSynchronize();
      },
      "use-after-poison(.|\n)*write_behind");
}
#else
TEST(ShimMemoryDeathTest, WritesBesideAnAllocationAreFoundWhenItIsFreed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const cuda_shim::Configured configured({.protect = false});
  EXPECT_DEATH(
      {
        char* data = nullptr;
        CUDA_CHECK(cudaMalloc(&data, 30));
        *static_cast<volatile char*>(data + 30) = 1;
        cudaFree(data);
      },
      "byte 30 of an allocation of 30 bytes was written");
}
#endif

}  // namespace
}  // namespace trivet::cuda::memory_test
