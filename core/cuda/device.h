// Finds the GPUs of this process and chooses the one that a rank uses.
#pragma once

#include <cstdint>
#include <string>

namespace trivet::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int capability_major = 0, capability_minor = 0;
};

// The number of GPUs that this process sees and, if there are none, the reason. Counting does not throw.
struct DeviceCount {
  int count = 0;
  std::string reason;
};
DeviceCount count_devices();

// Checks whether ranks may share a GPU (TRIVET_SHARE_GPU=1), for tests on a machine with only one.
bool sharing_allowed();

// The GPU for the rank with this number on its host: the one with the same index. If there are too few GPUs, ranks share them
// round-robin where sharing is allowed; otherwise this throws DeviceError.
int choose_device(int local_rank);

// Makes `index` the device of this thread. Throws DeviceError if it is too old for this build.
DeviceInfo open_device(int index);

// Changes the thread's device within a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace trivet::cuda
