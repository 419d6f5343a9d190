// What a device offers to one rank's engine: kernels, memory, streams and groups for its tensors. One backend a rank.
//
// The engine does not ask what it is on: it takes all of this from here, and the order of work is the same (docs/cuda.md).
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
#include "kernels/kernels.h"

namespace trivet {

// Streams of higher urgency go first where the device must choose.
enum class StreamUse { Control, Gather, Reduce, Tensor, Link, Copy };

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
  // What is free on the device now. A CPU does not say.
  virtual int64_t free_bytes() const { return std::numeric_limits<int64_t>::max(); }
  // Host memory that the device copies from and to at full speed.
  virtual Allocator& staging_allocator() = 0;
  // `overlaps`: its work may run beside the kernels; otherwise it runs in their order.
  virtual std::unique_ptr<Stream> make_stream(StreamUse use, bool overlaps) = 0;
  // Of the streams and of what the kernels do.
  virtual std::unique_ptr<StreamClock> make_clock() = 0;
  // A group of the same ranks for tensors of the device. `host` is one for tensors of the host, which the result owns.
  // Collective over the group.
  virtual std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> host) = 0;
  // Does `work`. A device may keep what it launched and from then on launch that again in place of calling `work`, as long as
  // the key is the same. So the work is kernels alone, which learn from memory what changes; it does not wait for them, copies
  // nothing from or to the host, and leaves the host's objects as it finds them.
  virtual void repeat(const RepeatKey&, const std::function<void()>& work) { work(); }
  // Collective over the world: waits until the work of all ranks' devices is done. What is placed on the device may go then.
  virtual void close() {}
};

// `world` and `meter` must outlive the backend.
struct BackendOptions {
  comm::ProcessGroup& world;    // all ranks, for tensors of the host
  MemoryMeter& meter;           // of what the backend itself takes
  int threads = 1;              // that kernels on a CPU may use
  int local_rank = 0;           // of the ranks of this host: chooses the GPU
  int64_t workspace_bytes = 0;  // that kernels need besides their arguments (kernels/workspace.h)
};

// Throws ConfigError or DeviceError when the device is not there, with what is missing.
std::unique_ptr<Backend> make_backend(Device device, const BackendOptions& options);

std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace trivet
