// Tests which GPU a rank gets, and which message and exit code it gets if there is none.
#include "core/cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/cuda/error.h"
#include "core/error.h"
#include "shim.h"

namespace trivet::cuda::device_test {
namespace {

using cuda_shim::Configured;
using testing::HasSubstr;

// Sets an environment variable for the length of a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

void expect_error(const std::function<void()>& call, ExitCode code, const std::string& message) {
  try {
    call();
    ADD_FAILURE() << "no error: " << message;
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.exit_code(), code);
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(DeviceChoice, RankNOfAHostHasGpuN) {
  const Configured four({.devices = 4});
  EXPECT_EQ(count_devices().count, 4);
  EXPECT_EQ(choose_device(0), 0);
  EXPECT_EQ(choose_device(3), 3);
}

TEST(DeviceChoice, MoreRanksThanGpusAreRefusedUnlessTheyMayShare) {
  {
    const Configured one({.devices = 1});
    {  // srun --gpus-per-task=1, or a script that gives each rank a GPU of its own
      const Variable visible("CUDA_VISIBLE_DEVICES", "GPU-1f3e");
      EXPECT_EQ(choose_device(1), 0);
    }
    expect_error([] { choose_device(1); }, ExitCode::Usage,
                 "cuda: rank 1 of this host has no GPU: there is 1; start no more ranks on a host than it has GPUs "
                 "(TRIVET_SHARE_GPU=1 lets ranks share them, slowly, for a test)");
  }
  const Configured two({.devices = 2});
  {
    const Variable visible("CUDA_VISIBLE_DEVICES", "3,5");
    expect_error([] { choose_device(2); }, ExitCode::Usage,
                 "cuda: rank 2 of this host has no GPU: there are 2 (CUDA_VISIBLE_DEVICES=3,5); start no more ranks on a host "
                 "than it has GPUs (TRIVET_SHARE_GPU=1 lets ranks share them, slowly, for a test)");
  }
  const Variable share("TRIVET_SHARE_GPU", "1");
  EXPECT_EQ(choose_device(2), 0);
  EXPECT_EQ(choose_device(3), 1);
}

TEST(DeviceInfo, SaysWhatIsThere) {
  const Configured configured({.capability = 80, .multiprocessors = 7, .memory_bytes = 1 << 20});
  const DeviceInfo info = open_device(0);
  EXPECT_EQ(info.name, "shim");
  EXPECT_EQ(info.multiprocessors, 7);
  EXPECT_EQ(info.memory_bytes, 1 << 20);
  EXPECT_EQ(info.capability_major, 8);
  EXPECT_EQ(info.capability_minor, 0);
}

TEST(DeviceInfo, OldGpusAreRefusedByName) {
  const Configured configured({.capability = 75});
  expect_error([] { open_device(0); }, ExitCode::Usage,
               "cuda:0: shim has compute capability 7.5; 8.0 (A100) or newer is needed");
}

TEST(DeviceInfo, GpusWithoutRoomForAttentionAreRefusedByName) {
  const Configured configured({.capability = 89});
  expect_error([] { open_device(0); }, ExitCode::Usage,
               "cuda:0: shim (compute capability 8.9) has 99 KiB of shared memory per block; attention needs "
               "163 KiB (A100, H100, H200)");
}

TEST(NoDevice, SaysSo) {
  const Configured none({.devices = 0});
  EXPECT_EQ(count_devices().count, 0);
  expect_error(
      [] { choose_device(0); }, ExitCode::Usage,
      "cuda: cudaErrorNoDevice (no CUDA-capable device is detected); this machine has no GPU, or this user or container "
      "may not use it (nvidia-smi lists the GPUs)");
  const Variable visible("CUDA_VISIBLE_DEVICES", "");
  EXPECT_THAT(count_devices().reason, HasSubstr("CUDA_VISIBLE_DEVICES= hides all GPUs"));
}

TEST(NoDevice, DriversThatAreMissingOrTooOldAreNamedWithTheVersionThatIsNeeded) {
  {
    const Configured none({.driver_version = 0});
    expect_error([] { choose_device(0); }, ExitCode::Usage,
                 "cuda: cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime version); no NVIDIA "
                 "driver is installed here; this build uses CUDA 13.0 and needs driver 580 or newer");
  }
  const Configured old({.driver_version = 12040});
  expect_error([] { choose_device(0); }, ExitCode::Usage,
               "cuda: cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime version); the NVIDIA "
               "driver supports CUDA 12.4; this build uses CUDA 13.0 and needs driver 580 or newer");
  expect_error([] { CUDA_CHECK(cudaSetDevice(0)); }, ExitCode::Usage,
               "cuda: cudaSetDevice(0): cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime "
               "version); the NVIDIA driver supports CUDA 12.4; this build uses CUDA 13.0 and needs driver 580 or newer");
}

TEST(DeviceErrors, NameTheDeviceTheCallAndWhatToDo) {
  const Configured two({.devices = 2});
  const DeviceScope scope(1);
  cuda_shim::break_device(cudaErrorIllegalAddress);
  expect_error([] { CUDA_CHECK(cudaStreamSynchronize(nullptr)); }, ExitCode::Internal,
               "cuda:1: cudaStreamSynchronize(nullptr): cudaErrorIllegalAddress (an illegal memory access was encountered); a "
               "kernel failed before this call; CUDA_LAUNCH_BLOCKING=1 shows which one, and compute-sanitizer shows where");
}

TEST(DeviceErrors, HardwareThatFailsHasAnExitCodeOfItsOwn) {
  const Configured configured(cuda_shim::configuration());
  cuda_shim::break_device(cudaErrorECCUncorrectable);
  try {
    CUDA_CHECK(cudaDeviceSynchronize());
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Device);
    EXPECT_THAT(error.what(), HasSubstr("take this host out of the job"));
  }
}

TEST(DeviceErrors, AreNotSeenTwice) {
  EXPECT_THROW(CUDA_CHECK(cudaSetDevice(77)), DeviceError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace trivet::cuda::device_test
