// Tests the device's Kernels: which stream and which workspace they use, and when the host waits.
#include "kernels/cuda/cuda_kernels.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/cuda/memory.h"
#include "tests/cuda/gate.h"
#include "tests/cuda/twins.h"

namespace trivet::kernels::cuda_kernels_test {
namespace {

struct CudaKernelsTest : testing::Test {
  trivet::cuda::Streams streams{0};
  std::unique_ptr<Allocator> memory = trivet::cuda::make_device_allocator(0);
  MemoryMeter meter;

  std::unique_ptr<Kernels> make(int64_t workspace_bytes, int64_t staging_bytes = 64) {
    return make_cuda_kernels({.streams = &streams,
                              .allocator = memory.get(),
                              .meter = &meter,
                              .workspace_bytes = workspace_bytes,
                              .staging_bytes = staging_bytes});
  }
};

TEST_F(CudaKernelsTest, CopiesPageableMemoryThroughStagingOfAnySize) {
  for (const int64_t staging : {3, 64, 1 << 20}) {
    const auto kernels = make(0, staging);
    HostTensor first = HostTensor::random(DType::Float32, {101}, 1), second = HostTensor::random(DType::Float32, {7}, 2);
    const DeviceTensor one(HostTensor::poisoned(DType::Float32, {101})), other(HostTensor::poisoned(DType::Float32, {7}));
    kernels->from_host(first.view(), one.view());
    kernels->from_host(second.view(), other.view());
    kernels->from_host(HostTensor(DType::Float32, {0}).view(), other.view().slice(0, 0));
    HostTensor first_back(DType::Float32, {101}), second_back(DType::Float32, {7});
    kernels->to_host(one.view(), first_back.view());
    kernels->to_host(other.view(), second_back.view());
    EXPECT_EQ(first_back, first);
    EXPECT_EQ(second_back, second);
  }
}

TEST_F(CudaKernelsTest, WhatWasCopiedFromTheHostMayChangeAtOnce) {
  const auto kernels = make(0, 4096);
  const DeviceTensor x(HostTensor::filled(DType::Float32, {64 * 1024}, 1)), copy(HostTensor(DType::Float32, {4}));
  float* pinned = nullptr;
  CUDA_CHECK(cudaMallocHost(&pinned, 4 * sizeof(float)));
  std::fill_n(pinned, 4, 5.0f);
  for (int i = 0; i < 10; ++i) kernels->scale(x.view(), 2);  // keeps the stream busy meanwhile
  kernels->from_host({pinned, DType::Float32, {4}}, copy.view());
  std::fill_n(pinned, 4, 6.0f);
  HostTensor back(DType::Float32, {4});
  kernels->to_host(copy.view(), back.view());
  EXPECT_EQ(back.at(3), 5);
  CUDA_CHECK(cudaFreeHost(pinned));
}

TEST_F(CudaKernelsTest, ToHostWaitsForTheKernelsBeforeIt) {
  const auto kernels = make(0);
  const DeviceTensor x(HostTensor::filled(DType::Float32, {64 * 1024}, 1));
  for (int i = 0; i < 10; ++i) kernels->scale(x.view(), 2);
  HostTensor last(DType::Float32, {1});
  kernels->to_host(x.view().slice(64 * 1024 - 1, 1), last.view());
  EXPECT_EQ(last.at(0), 1024);
}

// Copies of 0, 1 and odd numbers of elements, which begin anywhere, run in the order of the stream without a wait.
TEST_F(CudaKernelsTest, PinnedMemoryIsCopiedInOrderWithoutAWait) {
  const auto kernels = make(0);
  constexpr int64_t kElements = 1001;
  uint16_t* pinned = nullptr;
  CUDA_CHECK(cudaMallocHost(&pinned, 2 * kElements * sizeof(uint16_t)));
  const TensorView up{pinned, DType::BFloat16, {kElements}}, down{pinned + kElements, DType::BFloat16, {kElements}};
  for (int64_t e = 0; e < kElements; ++e) pinned[e] = static_cast<uint16_t>(0x3f80 + e % 7);
  const DeviceTensor x(HostTensor(DType::BFloat16, {kElements}));
  {
    trivet::cuda::Gate gate(streams.compute());
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 0}, {0, 1}, {1, kElements - 2}, {kElements - 1, 1}}) {
      kernels->copy_pinned(up.slice(first, count), x.view().slice(first, count));
      kernels->copy_pinned(x.view().slice(first, count), down.slice(first, count));
    }
    EXPECT_TRUE(trivet::cuda::stays_busy(streams.compute()));
  }
  streams.make_compute_stream()->record().wait_on_host();
  EXPECT_TRUE(std::equal(pinned, pinned + kElements, pinned + kElements));
  EXPECT_THROW(kernels->copy_pinned(up, x.view().slice(0, 1)), std::logic_error);
  CUDA_CHECK(cudaFreeHost(pinned));
}

TEST_F(CudaKernelsTest, KernelsOfWorkGoToItsStream) {
  const auto kernels = make(1 << 20);
  const auto side = streams.make_stream(0);
  const DeviceTensor x(HostTensor::filled(DType::Float32, {1024}, 1)), dbias(HostTensor(DType::Float32, {8}));
  kernels->scale(x.view(), 3);
  side->enqueue([&] {
    kernels->bias_gradient({.dy = x.view().reshaped({128, 8}), .dbias = dbias.view(), .accumulate = false});
  });
  side->synchronize();
  HostTensor sums(DType::Float32, {8});
  kernels->to_host(dbias.view(), sums.view());
  EXPECT_EQ(sums.at(7), 384);
}

TEST_F(CudaKernelsTest, EachStreamHasAWorkspaceThatThePlanSized) {
  const DeviceTensor dy(HostTensor(DType::Float32, {128, 8})), dbias(HostTensor(DType::Float32, {8}));
  const BiasGradient args{.dy = dy.view(), .dbias = dbias.view()};
  const int64_t bytes = workspace_bytes(args);
  const auto kernels = make(bytes);
  kernels->gelu({.x = dy.view(), .y = dy.view()});
  EXPECT_EQ(meter.now()[MemoryCategory::Buffers], 0);  // no kernel has needed a workspace
  kernels->bias_gradient(args);
  kernels->bias_gradient(args);
  EXPECT_EQ(meter.now()[MemoryCategory::Buffers], bytes);
  const auto side = streams.make_stream(0);
  side->enqueue([&] { kernels->bias_gradient(args); });
  EXPECT_EQ(meter.now()[MemoryCategory::Buffers], 2 * bytes);
  const auto too_small = make(bytes - 1);
  try {
    too_small->bias_gradient(args);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_EQ(std::string(error.what()), "cuda kernels: a kernel needs a workspace of " + std::to_string(bytes) +
                                             " bytes, but the plan provides " + std::to_string(bytes - 1));
  }
}

TEST_F(CudaKernelsTest, ArgumentsThatDoNotFitAreRefusedAsOnEveryDevice) {
  const auto kernels = make(0);
  const DeviceTensor x(HostTensor(DType::Float32, {4})), y(HostTensor(DType::Float32, {5}));
  EXPECT_THROW(kernels->gelu({.x = x.view(), .y = y.view()}), std::logic_error);
  EXPECT_THROW(kernels->copy(x.view(), y.view()), std::logic_error);
}

#if __has_include("shim.h")
TEST_F(CudaKernelsTest, AStepWaitsForTheDeviceOnce) {
  const auto kernels = make(1 << 20, 1 << 20);
  HostTensor tokens = HostTensor::random(DType::Float32, {64, 8}, 1), losses(DType::Float32, {8});
  const DeviceTensor x(tokens), dbias(HostTensor(DType::Float32, {8}));
  const auto step = [&] {
    kernels->from_host(tokens.view(), x.view());
    kernels->gelu({.x = x.view(), .y = x.view()});
    kernels->bias_gradient({.dy = x.view(), .dbias = dbias.view()});
    kernels->zero(dbias.view());
    kernels->to_host(dbias.view(), losses.view());
  };
  step();
  const cuda_shim::Counts before = cuda_shim::counts();
  step();
  const cuda_shim::Counts after = cuda_shim::counts();
  EXPECT_EQ(after.host_waits - before.host_waits, 1);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.pageable_copies, before.pageable_copies);
}

TEST_F(CudaKernelsTest, AdamOfABlocksRangesIsOneLaunch) {
  const DeviceTensor state(HostTensor::filled(DType::Float32, {600}, 0.5)), gradient(HostTensor(DType::BFloat16, {600}));
  std::vector<Adam> updates;
  for (int64_t i = 0; i < 12; ++i) {
    const TensorView part = state.view().slice(50 * i, i == 7 ? 0 : 50);
    updates.push_back(
        {.master = part, .moment1 = part, .moment2 = part, .gradient = gradient.view().slice(50 * i, part.elements())});
  }
  const auto kernels = make(0);
  const int64_t before = cuda_shim::counts().launches;
  kernels->adam(updates);
  EXPECT_EQ(cuda_shim::counts().launches - before, 1);
}
#endif

}  // namespace
}  // namespace trivet::kernels::cuda_kernels_test
