// Which GPUs there are, and which one a rank uses.
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

// GPUs that this process sees; when there is none, why. Does not throw.
struct DeviceCount {
  int count = 0;
  std::string reason;
};
DeviceCount count_devices();

// Ranks may share a GPU (a test on a machine with one): TRIVET_SHARE_GPU=1.
bool sharing_allowed();

// The GPU of the rank with this number on its host: the one with the same index. DeviceError when there are too few; where
// sharing is allowed, ranks take turns.
int choose_device(int local_rank);

// Makes `index` the device of this thread. DeviceError when it is too old for this build.
DeviceInfo open_device(int index);

// The thread's device within a scope.
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
