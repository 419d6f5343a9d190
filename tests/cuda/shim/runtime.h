// The state of the fake devices, shared by the files of this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fiber.h"
#include "shim.h"

namespace cuda_shim {

// The work that streams are given while they are captured, in that order.
struct Capture {
  struct Node {
    std::function<void()> work;
    std::vector<int> after;
  };
  cudaStream_t origin;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::atomic<bool> valid = true, ended = false;  // other threads may read them
  std::vector<Node> nodes;
  std::vector<cudaStream_t> streams;  // the origin and those that have joined by waiting for an event of it
};

// A point in a stream's order. Once it has happened, time() says when.
class Moment {
 public:
  void happen();
  bool happened();
  void wait();
  std::chrono::steady_clock::time_point time();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
  std::chrono::steady_clock::time_point time_;
};

// Where an event was recorded: in a stream's order, or in a capture.
struct Recording {
  std::shared_ptr<Moment> moment;  // null: never recorded, counts as happened
  std::shared_ptr<Capture> capture;
  std::vector<int> nodes;  // of the capture: the last ones of the recording stream
};

struct Allocation {
  size_t bytes;
  int device;    // -1: pinned memory of the host
  bool pages;    // it has pages of its own, which only working streams may access
  bool managed;  // the host may access it, too, unless managed memory is hidden
};

struct Device {
  cudaError_t fault = cudaSuccess;  // returned by every call once set
  std::string report;
  int64_t allocated_bytes = 0;
  std::vector<cudaStream_t> streams;
  cudaStream_t default_stream = nullptr;
};

struct Runtime {
  Runtime();
  std::mutex mutex;  // guards all below (Locked)
  Configuration configuration;
  std::map<int, Device> devices;
  std::map<uintptr_t, Allocation> allocations;
  int streams_working = 0;
  bool managed_is_hidden = false;
  std::map<std::pair<int, const void*>, int> dynamic_shared_limits;  // by device and kernel, where a program has set them
  struct {
    std::atomic<int64_t> launches, graph_launches, host_waits, allocations, events_made, streams_made, pageable_copies;
  } counts{};
};
Runtime& runtime();

// Holds the lock of the state. ThreadSanitizer does not see this lock: otherwise two streams would count as ordered because
// both were looked up here.
class Locked {
 public:
  Locked() : lock_(runtime().mutex) {}

 private:
  Unseen unseen_;
  std::lock_guard<std::mutex> lock_;
};

int current_device();
size_t max_shared_bytes();                  // dynamic, of a block, after cudaFuncSetAttribute
cudaStream_t resolve(cudaStream_t stream);  // the current device's default stream for null
void break_device(int device, cudaError_t error, const std::string& report);
bool broken(int device);
// Both make the host wait.
void wait_for_all_streams(int device);
cudaError_t wait_for(CUstream_st& stream);
// Returns an error for calls that may not be made now, because this thread is capturing or because a capture in global mode
// refuses them to all threads. Such a call invalidates the capture.
cudaError_t refuse_in_capture();
void join_capture(CUstream_st& stream, const Recording& recording);

// The error that every call returns now: no driver, no device, a fault, or a call from inside a host function.
cudaError_t obstacle();
cudaError_t remember(cudaError_t error);

// Every function of the runtime runs its body in this frame.
template <typename Body>
cudaError_t call(Body&& body) {
  cudaError_t error = obstacle();
  if (error == cudaSuccess) error = body();
  return remember(error);
}

// While one lives, a stream works with device memory.
class StreamWork {
 public:
  StreamWork();
  ~StreamWork();
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;
};

// While one lives, this thread runs a host function, which may not call the runtime.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
};

}  // namespace cuda_shim

struct CUstream_st {
  CUstream_st(int device, int priority);
  ~CUstream_st();  // when all work is done

  // Both run on the stream's thread, or become a node of the graph that is being captured.
  void enqueue(std::function<void()> work);          // may access device memory
  void enqueue_on_host(std::function<void()> work);  // may not
  std::shared_ptr<cuda_shim::Moment> record();
  bool idle();

  const int device, priority;
  std::shared_ptr<cuda_shim::Capture> capture;  // while capturing
  std::vector<int> last_nodes;                  // of the capture: the next node follows them

 private:
  using Work = std::function<void()>;
  void push(Work work);
  std::unique_ptr<Work> next();  // waits for work; null at the end
  void finish_one(std::unique_ptr<Work> item);
  void run();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Work>> queue_;
  int unfinished_ = 0;
  bool closing_ = false;
  std::thread thread_;  // last: it uses what is above
};

struct CUevent_st {
  int device;
  bool timing;
  cuda_shim::Recording recording;
};
