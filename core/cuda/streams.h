// The streams of one rank on its GPU (docs/cuda.md, "Order").
//
//   compute   k1 ---- k2 ------------- k3 ------ k4        kernels, in program order
//                 \                   /
//   gather         `- all_gather ----'                     side stream: enqueue() waits for k1, event.synchronize() holds k3
//
// One thread runs a rank: it makes the Streams, launches kernels and enqueues. Where its kernels go is current(): compute, or
// within enqueue(work) the side stream. The host waits in Event::wait_on_host() alone, and where an event is synchronized by
// another thread than the rank's (a stream of host work: offload, checkpoints), because what that does next is done by the
// host.
//
// Work throws out of enqueue() at once: it runs on the caller's thread. What fails later, on the device, shows at a later call
// as a DeviceError. Destroying a stream does not wait; what is queued is still done.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/cuda/handle.h"
#include "core/stream.h"

namespace trivet::cuda {

// Events of one device to use again: none is created once a step has had all it needs at a time. Any thread.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  EventHandle take();
  void give_back(EventHandle event);

 private:
  int device_;
  std::mutex mutex_;
  std::vector<EventHandle> free_;
};

class Streams {
 public:
  // On the rank's thread, which uses `device` from now on.
  explicit Streams(int device);
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  int device() const { return device_; }
  cudaStream_t compute() const { return compute_.get(); }
  // The stream that this thread's kernels and copies belong to now.
  cudaStream_t current() const;

  // A side stream. `urgency`: where the GPU must choose between blocks of two streams, those of the higher go first; 0 is the
  // compute stream's, and more than the device has is its highest. The Streams must outlive it and its events.
  std::unique_ptr<Stream> make_stream(int urgency) const;
  // Its work runs in the order of the kernels: no overlap.
  std::unique_ptr<Stream> make_compute_stream() const;

  // The compute stream comes after all that side streams were given; they come after it.
  void join() const;
  void fork() const;

  // For the streams and events themselves.
  bool on_own_thread() const { return std::this_thread::get_id() == thread_; }
  const std::shared_ptr<EventPool>& events() const { return events_; }
  void add(cudaStream_t side_stream) const { side_streams_.push_back(side_stream); }
  void remove(cudaStream_t side_stream) const { std::erase(side_streams_, side_stream); }
  // Of the capture that the rank's thread is in, from 1; 0: none.
  int64_t capture() const { return capture_; }

 private:
  friend class CaptureScope;

  const int device_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::shared_ptr<EventPool> events_;
  StreamHandle compute_;
  mutable std::vector<cudaStream_t> side_streams_;
  int64_t capture_ = 0, captures_ = 0;
};

// What the streams are given is captured (core/cuda/graph.h). Events of a capture order what is in it and nothing else: before
// and after, join() and fork() do.
class CaptureScope {
 public:
  explicit CaptureScope(Streams& streams) : streams_(streams) { streams_.capture_ = ++streams_.captures_; }
  ~CaptureScope() { streams_.capture_ = 0; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  Streams& streams_;
};

// The stream that kernels of this thread go to within a scope, in place of the compute stream.
class StreamScope {
 public:
  explicit StreamScope(const Streams& streams, cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  const Streams* before_streams_;
  cudaStream_t before_stream_;
};

}  // namespace trivet::cuda
