// Streams and events.
#include <pthread.h>

#include <algorithm>

#include "block.h"
#include "runtime.h"

namespace cuda_shim {

void Moment::happen() {
  {
    std::lock_guard lock(mutex_);
    happened_ = true;
    time_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

bool Moment::happened() {
  std::lock_guard lock(mutex_);
  return happened_;
}

void Moment::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return happened_; });
}

std::chrono::steady_clock::time_point Moment::time() {
  std::lock_guard lock(mutex_);
  return time_;
}

cudaStream_t resolve(cudaStream_t stream) {
  if (stream) return stream;
  std::lock_guard lock(runtime().mutex);
  Device& device = runtime().devices[current_device()];
  if (!device.default_stream) {
    device.default_stream = new CUstream_st(current_device(), 0);  // lives as long as the process
    device.streams.push_back(device.default_stream);
  }
  return device.default_stream;
}

void wait_for_all_streams(int device) {
  ++runtime().counts.host_waits;
  std::vector<std::shared_ptr<Moment>> ends;
  {
    std::lock_guard lock(runtime().mutex);
    for (cudaStream_t stream : runtime().devices[device].streams) ends.push_back(stream->record());
  }
  for (const auto& end : ends) end->wait();
}

cudaError_t wait_for(CUstream_st& stream) {
  if (stream.capture) {
    stream.capture->valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  ++runtime().counts.host_waits;
  stream.record()->wait();
  return obstacle();
}

namespace {

cudaError_t make_stream(cudaStream_t* stream, int priority) {
  return call([&] {
    *stream = new CUstream_st(current_device(), std::clamp(priority, -5, 0));
    ++runtime().counts.streams_made;
    std::lock_guard lock(runtime().mutex);
    runtime().devices[current_device()].streams.push_back(*stream);
    return cudaSuccess;
  });
}

cudaError_t record(CUevent_st& event, CUstream_st& stream) {
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  if (stream.capture) {
    event.recording = {nullptr, stream.capture, stream.last_nodes};
  } else {
    event.recording = {stream.record(), nullptr, {}};
  }
  return cudaSuccess;
}

cudaError_t wait(CUstream_st& stream, const Recording& recording) {
  if (recording.capture) {
    if (stream.capture && stream.capture != recording.capture) return cudaErrorStreamCaptureIsolation;
    join_capture(stream, recording);
    return cudaSuccess;
  }
  if (stream.capture) return cudaErrorStreamCaptureIsolation;
  if (recording.moment) stream.enqueue_on_host([moment = recording.moment] { moment->wait(); });
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda_shim

CUstream_st::CUstream_st(int device_, int priority_) : device(device_), priority(priority_), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "cuda shim");
}

CUstream_st::~CUstream_st() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void CUstream_st::enqueue(std::function<void()> work) {
  enqueue_on_host([work = std::move(work)] {
    const cuda_shim::StreamWork guard;
    work();
  });
}

void CUstream_st::enqueue_on_host(std::function<void()> work) {
  if (capture) {
    capture->nodes.push_back({std::move(work), last_nodes});
    last_nodes = {static_cast<int>(capture->nodes.size()) - 1};
    return;
  }
  {
    std::lock_guard lock(mutex_);
    queue_.push_back([this, work = std::move(work)] {
      if (!cuda_shim::broken(device)) work();
    });
    ++unfinished_;
  }
  wake_.notify_one();
}

// Happens on a broken device, too: what waits for it must find out.
std::shared_ptr<cuda_shim::Moment> CUstream_st::record() {
  auto moment = std::make_shared<cuda_shim::Moment>();
  {
    std::lock_guard lock(mutex_);
    queue_.push_back([moment] { moment->happen(); });
    ++unfinished_;
  }
  wake_.notify_one();
  return moment;
}

bool CUstream_st::idle() {
  std::lock_guard lock(mutex_);
  return unfinished_ == 0;
}

void CUstream_st::run() {
  cuda_shim::BlockRunner runner;  // of the kernels on this stream
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    --unfinished_;
  }
}

using cuda_shim::call;
using cuda_shim::resolve;

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return call([] { return cudaSuccess; });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cuda_shim::make_stream(stream, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cuda_shim::make_stream(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  return cuda_shim::make_stream(stream, priority);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call([&] {
    *priority = resolve(stream)->priority;
    return cudaSuccess;
  });
}

// Work that is queued is done first. Not refused on a broken device: the thread would stay.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return cuda_shim::remember(cudaErrorInvalidResourceHandle);
  {
    std::lock_guard lock(cuda_shim::runtime().mutex);
    std::erase(cuda_shim::runtime().devices[stream->device].streams, stream);
  }
  delete stream;
  return cuda_shim::obstacle();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] { return cuda_shim::wait_for(*resolve(stream)); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&] {
    if (const cudaError_t error = cuda_shim::refuse_in_capture()) return error;
    return resolve(stream)->idle() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call([&] { return event ? cuda_shim::wait(*resolve(stream), event->recording) : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&] {
    resolve(stream)->enqueue_on_host([function, data] {
      const cuda_shim::InHostFunction guard;
      function(data);
    });
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&] {
    *event = new CUevent_st{cuda_shim::current_device(), (flags & cudaEventDisableTiming) == 0, {}};
    ++cuda_shim::runtime().counts.events_made;
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return cuda_shim::remember(cudaErrorInvalidResourceHandle);
  delete event;
  return cuda_shim::obstacle();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] { return event ? cuda_shim::record(*event, *resolve(stream)) : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&] {
    if (event->recording.capture) return cudaErrorCapturedEvent;
    if (const cudaError_t error = cuda_shim::refuse_in_capture()) return error;
    const auto& moment = event->recording.moment;
    return !moment || moment->happened() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] {
    if (event->recording.capture) return cudaErrorCapturedEvent;
    if (const cudaError_t error = cuda_shim::refuse_in_capture()) return error;
    ++cuda_shim::runtime().counts.host_waits;
    if (event->recording.moment) event->recording.moment->wait();
    return cuda_shim::obstacle();
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    const auto &from = start->recording.moment, &to = end->recording.moment;
    if (!start->timing || !end->timing || !from || !to) return cudaErrorInvalidResourceHandle;
    if (!from->happened() || !to->happened()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->time() - from->time()).count();
    return cudaSuccess;
  });
}
