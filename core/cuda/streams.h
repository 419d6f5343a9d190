// The streams of one rank on its GPU (docs/cuda.md, "Order").
//
//   compute   k1 ---- k2 ------------- k3 ------ k4        kernels, in program order
//                 \                   /
//   gather         `- all_gather ----'                     side stream: enqueue() waits for k1; synchronize() makes k3 wait
//
// One thread runs a rank: it creates the Streams, launches kernels and enqueues. Its kernels go to current(): the compute
// stream or, within enqueue(work), the side stream. The host waits only in Event::wait_on_host() and when a thread other than
// the rank's (a stream of host work: offload, checkpoints) synchronizes an event, because the host does that thread's next
// work.
//
// enqueue() calls the work on the caller's thread, so its exceptions are thrown at once. A failure on the device is reported by
// a later call as a DeviceError. Destroying a stream does not wait; queued work is still done.
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

// Reusable events of one device. None is created once the pool has as many as a step needs at a time. Thread-safe.
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
  // Called on the rank's thread, which uses `device` from then on.
  explicit Streams(int device);
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  int device() const { return device_; }
  cudaStream_t compute() const { return compute_.get(); }
  // The stream that this thread's kernels and copies belong to now.
  cudaStream_t current() const;

  // Creates a side stream. When the GPU must choose between blocks of two streams, those of the higher `urgency` go first; the
  // compute stream has 0, and a value above the device's highest becomes the highest. The Streams must outlive the new stream
  // and its events.
  std::unique_ptr<Stream> make_stream(int urgency) const;
  // Creates a stream whose work runs in order with the kernels, without overlap.
  std::unique_ptr<Stream> make_compute_stream() const;

  // The compute stream waits for all work enqueued on the side streams.
  void join() const;
  // The side streams wait for all work enqueued on the compute stream.
  void fork() const;

  // Used by the streams and events themselves.
  bool on_own_thread() const { return std::this_thread::get_id() == thread_; }
  const std::shared_ptr<EventPool>& events() const { return events_; }
  void add(cudaStream_t side_stream) const { side_streams_.push_back(side_stream); }
  void remove(cudaStream_t side_stream) const { std::erase(side_streams_, side_stream); }
  // Number of the capture that the rank's thread is in, counted from 1; 0: none.
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

// Captures the work that the streams are given within a scope (core/cuda/graph.h). Events of a capture order only the work
// inside it; join() and fork() order it with the work before and after.
class CaptureScope {
 public:
  explicit CaptureScope(Streams& streams) : streams_(streams) { streams_.capture_ = ++streams_.captures_; }
  ~CaptureScope() { streams_.capture_ = 0; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  Streams& streams_;
};

// Sends the kernels of this thread to `stream` instead of the compute stream within a scope.
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
