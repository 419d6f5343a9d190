// Runs ranks as threads, each with a GPU of its own, a group over NCCL and a stream, for the tests of comm/nccl.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_group.h"
#include "comm/world.h"
#include "core/cuda/error.h"
#include "core/memory.h"
#include "tests/cuda/shim/shim.h"

namespace trivet::comm {

inline thread_local cudaStream_t the_current_stream = nullptr;

// Calls work at once; what the work launches goes to a stream of the device.
class DeviceStream final : public Stream {
 public:
  DeviceStream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~DeviceStream() override { cudaStreamDestroy(stream_); }
  void enqueue(std::function<void()> work) override {
    const cudaStream_t before = std::exchange(the_current_stream, stream_);
    try {
      work();
    } catch (...) {
      the_current_stream = before;
      throw;
    }
    the_current_stream = before;
  }
  Event record() override { return {}; }
  void wait(const Event&) override {}
  void synchronize() override { CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class DeviceMemory final : public Allocator {
 public:
  Device device() const override { return Device::Cuda; }
  void* allocate(int64_t bytes) override {
    void* data = nullptr;
    CUDA_CHECK(cudaMalloc(&data, static_cast<size_t>(bytes)));
    return data;
  }
  void release(void* data, int64_t) noexcept override { cudaFree(data); }
};

// A vector on the device.
template <typename T>
class DeviceVector {
 public:
  explicit DeviceVector(const std::vector<T>& values) : count_(static_cast<int64_t>(values.size())) {
    if (count_ == 0) return;
    CUDA_CHECK(cudaMalloc(&data_, values.size() * sizeof(T)));
    assign(values);
  }
  ~DeviceVector() { cudaFree(data_); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  void assign(const std::vector<T>& values) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    if (count_ > 0) CUDA_CHECK(cudaMemcpy(values.data(), data_, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  TensorView view() const { return {data_, kDTypeOf<T>, {count_}}; }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

struct NcclRank {
  World& world;
  NcclResources& resources;
  ProcessGroup& group;  // "world", of all ranks
  DeviceStream& stream;

  // Waits for the stream and checks the watch, as an engine does.
  void wait() const {
    stream.synchronize();
    resources.watch().check();
  }
};

inline NcclOptions quick_options() {
  NcclOptions options;
  options.heartbeat = std::chrono::milliseconds(5);
  options.join_deadline = options.operation_deadline = std::chrono::milliseconds(20000);
  options.staging_bytes = 2 << 10;  // so that small tensors take several rounds
  options.one_exchange_bytes = 512;
  return options;
}

// Runs `body` on every rank, then closes everything politely. What a rank throws reaches the caller, as it does from
// run_threads.
inline void run_nccl(int ranks, const std::function<void(NcclRank&)>& body, const NcclOptions& options = quick_options(),
                     const WorldOptions& world_options = {}) {
  cuda_shim::Configuration configuration = cuda_shim::configuration();
  configuration.devices = ranks;
  const cuda_shim::Configured configured(configuration);
  run_threads(
      ranks,
      [&](World& world) {
        CUDA_CHECK(cudaSetDevice(world.rank()));
        DeviceMemory memory;
        MemoryMeter meter;
        NcclResources resources(
            world.group(), memory, meter, [] { return the_current_stream; }, options);
        DeviceStream stream;
        std::vector<int> all(world.size());
        std::iota(all.begin(), all.end(), 0);
        auto group = make_nccl_group(world.group().subgroup(all, "world"), resources);
        NcclRank rank{world, resources, *group, stream};
        body(rank);
        rank.wait();
        close_nccl_group(*group);
        resources.close();
        group.reset();
        world.close();
      },
      world_options);
}

}  // namespace trivet::comm
