// The interface of a device for one rank's engine: kernels, memory, streams and groups for its tensors. One backend per rank.
//
// The engine does not depend on the device: it gets all of this from the backend, and the order of work is the same
// (docs/cuda.md).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/stream.h"
#include "core/stream_clock.h"
#include "kernels/interface.h"
#include "pipeline/queue.h"

namespace trivet {

// Work with the same key launches the same kernels on the same memory.
using RepeatKey = std::vector<int64_t>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual std::string description() const = 0;  // for the first lines of a run: "cuda:0 NVIDIA H200, 139.8 GiB"
  virtual kernels::Kernels& kernels() = 0;
  // The memory that kernels work on.
  virtual Allocator& allocator() = 0;
  // The bytes that are free on the device now. A CPU reports no limit.
  virtual int64_t free_bytes() const { return std::numeric_limits<int64_t>::max(); }
  // Host memory that the device copies from and to at full speed.
  virtual Allocator& staging_allocator() = 0;
  // `overlaps`: its work may run in parallel with the kernels; otherwise it runs in order with them. The queue determines how
  // urgent a stream is: when the device must choose, more urgent streams go first.
  virtual std::unique_ptr<Stream> make_stream(pipeline::Queue queue, bool overlaps) = 0;
  // A clock that times the streams and the kernels.
  virtual std::unique_ptr<StreamClock> make_clock() = 0;
  // Returns a group of the same ranks for device tensors. `host` is the group for host tensors, which the result owns.
  // Collective over the group.
  virtual std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> host) = 0;
  // Runs `work`. A device may record what it launches, and then launch that again instead of calling `work` as long as the key
  // is the same. Therefore `work` must consist of kernels alone, which read what changes from memory; it must not wait for
  // them, copy anything from or to the host, or change objects of the host.
  virtual void repeat(const RepeatKey&, const std::function<void()>& work) { work(); }
  // Collective over the world: waits until the work on all ranks' devices is done. After that, what is on the device may be
  // freed.
  virtual void close() {}
};

// `world` and `meter` must outlive the backend.
struct BackendOptions {
  comm::ProcessGroup& world;    // all ranks, for host tensors
  MemoryMeter& meter;           // counts the backend's own memory
  int threads = 1;              // for kernels on a CPU
  int local_rank = 0;           // rank on this host; chooses the GPU
  int64_t workspace_bytes = 0;  // scratch memory of kernels (kernels/workspace.h)
};

// Throws ConfigError or DeviceError, which name what is missing, when the device is not available.
std::unique_ptr<Backend> make_backend(Device device, const BackendOptions& options);

std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace trivet
