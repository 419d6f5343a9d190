// The host waits for the device's copies: its memory is neither read, written nor handed out while they are in flight. The
// device's streams are threads here, which a gate holds.
#include "zero/host_and_device_tensors.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

namespace trivet::zero {
namespace {

class HeldCopies : public testing::Test {
 protected:
  HeldCopies() {
    auto to = make_thread_stream("to host"), from = make_thread_stream("from host");
    to_ = to.get(), from_ = from.get();
    side_ = std::make_unique<HostSide>(HostSideOptions{.device = *kernels_,
                                                       .host = *kernels_,
                                                       .allocator = host_allocator(),
                                                       .to = std::move(to),
                                                       .from = std::move(from),
                                                       .staging_bytes = 16384});
    std::iota(device_.begin(), device_.end(), 1.0f);
  }
  TensorView device() { return {device_.data(), DType::Float32, {kElements}}; }
  std::unique_ptr<HostTensor> host_tensor(float value) {
    auto tensor = std::make_unique<HostTensor>(*side_, MemoryCategory::Optimizer, DType::Float32, kElements);
    std::fill_n(tensor->host_memory().as<float>(), kElements, value);
    return tensor;
  }
  // Returns whether `work` ends only after the gate of `stream` is opened. `start` runs while the gate is closed.
  static bool waits_for(Stream& stream, const std::function<void()>& start, const std::function<void()>& work) {
    std::latch gate(1);
    stream.enqueue([&] { gate.wait(); });
    start();
    std::atomic<bool> ended = false;
    std::thread host([&] {
      work();
      ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const bool waited = !ended;
    gate.count_down();
    host.join();
    stream.synchronize();
    return waited;
  }

  static constexpr int64_t kElements = 8;
  std::vector<float> device_ = std::vector<float>(kElements);
  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_cpu_kernels(1);
  Stream *to_ = nullptr, *from_ = nullptr;
  std::unique_ptr<HostSide> side_;
};

TEST_F(HeldCopies, HostMemoryIsHandedOutWhenTheDeviceHasReadIt) {
  const auto tensor = host_tensor(7);
  EXPECT_TRUE(waits_for(
      *from_, [&] { tensor->copy_up(0, device()); }, [&] { std::fill_n(tensor->host_memory().as<float>(), kElements, 9.0f); }));
  EXPECT_EQ(device_, std::vector<float>(kElements, 7));
}

TEST_F(HeldCopies, HostMemoryIsHandedOutWhenTheDeviceHasWrittenIt) {
  const auto tensor = host_tensor(7);
  float last = 0;
  EXPECT_TRUE(waits_for(
      *to_, [&] { tensor->copy_down(device(), 0); }, [&] { last = tensor->host_memory().as<float>()[kElements - 1]; }));
  EXPECT_EQ(last, kElements);
}

TEST_F(HeldCopies, StagingOfAReadIsGivenBackWhenTheDeviceHasReadIt) {
  const auto file = host_tensor(7);
  FileTensorOnDevice seen(*side_, *file);
  PendingCopy read = seen.read(0, device());
  EXPECT_TRUE(waits_for(
      *from_, [] {}, [&] { read.wait(); }));
  EXPECT_EQ(device_, std::vector<float>(kElements, 7));
  EXPECT_EQ(side_->staging().used_bytes(), 0);
}

TEST_F(HeldCopies, AFileIsWrittenWhenTheDevicesCopyHasEnded) {
  const auto file = host_tensor(7);
  FileTensorOnDevice seen(*side_, *file);
  PendingCopy write;
  EXPECT_TRUE(waits_for(
      *to_, [&] { write = seen.write(0, device()); }, [&] { write.wait(); }));
  EXPECT_EQ(std::vector<float>(file->host_memory().as<float>(), file->host_memory().as<float>() + kElements), device_);
  EXPECT_EQ(side_->staging().used_bytes(), 0);
}

}  // namespace
}  // namespace trivet::zero
