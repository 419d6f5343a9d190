// Streams and events.
#include <pthread.h>

#include <algorithm>

#include "block.h"
#include "runtime.h"

namespace cuda_shim {

// Only moments and the hand-over of work order threads, to ThreadSanitizer as on a GPU. The locks do not.

void Moment::happen() {
  release_to(this);
  {
    const Unseen unseen;
    std::lock_guard lock(mutex_);
    happened_ = true;
    time_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

bool Moment::happened() {
  {
    const Unseen unseen;
    std::lock_guard lock(mutex_);
    if (!happened_) return false;
  }
  acquire_from(this);
  return true;
}

void Moment::wait() {
  {
    const Unseen unseen;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return happened_; });
  }
  acquire_from(this);
}

std::chrono::steady_clock::time_point Moment::time() {
  std::lock_guard lock(mutex_);
  return time_;
}

cudaStream_t resolve(cudaStream_t stream) {
  if (stream) return stream;
  const Locked lock;
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
    const Locked lock;
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
    const Locked lock;
    runtime().devices[current_device()].streams.push_back(*stream);
    return cudaSuccess;
  });
}

// A thread that drops the last reference to a moment is not ordered after it.
void forget(Recording& recording) {
  const Unseen unseen;
  recording = {};
}

cudaError_t record(CUevent_st& event, CUstream_st& stream) {
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  forget(event.recording);
  if (stream.capture) {
    event.recording = {nullptr, stream.capture, stream.last_nodes};
  } else {
    event.recording = {stream.record(), nullptr, {}};
  }
  return cudaSuccess;
}

cudaError_t wait(CUstream_st& stream, const Recording& recording) {
  if (recording.capture) {
    if (recording.capture->ended || (stream.capture && stream.capture != recording.capture))
      return cudaErrorStreamCaptureIsolation;
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
    const cuda_shim::Unseen unseen;
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
  push([this, work = std::move(work)] {
    if (!cuda_shim::broken(device)) work();
  });
}

// A moment happens on a broken device, too: whatever waits for it must learn of the fault.
std::shared_ptr<cuda_shim::Moment> CUstream_st::record() {
  // The last owner may be any thread.
  const auto forget = [](cuda_shim::Moment* moment) {
    const cuda_shim::Unseen unseen;
    delete moment;
  };
  const std::shared_ptr<cuda_shim::Moment> moment(new cuda_shim::Moment, forget);
  push([moment] { moment->happen(); });
  return moment;
}

void CUstream_st::push(Work work) {
  auto item = std::make_unique<Work>(std::move(work));
  cuda_shim::release_to(item.get());
  {
    const cuda_shim::Unseen unseen;
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    ++unfinished_;
  }
  wake_.notify_one();
}

std::unique_ptr<CUstream_st::Work> CUstream_st::next() {
  const cuda_shim::Unseen unseen;
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
  if (queue_.empty()) return nullptr;
  auto item = std::move(queue_.front());
  queue_.pop_front();
  return item;
}

void CUstream_st::finish_one(std::unique_ptr<Work> item) {
  cuda_shim::release_to(&unfinished_);
  const cuda_shim::Unseen unseen;  // hides the counts of shared pointers, too
  item.reset();
  std::lock_guard lock(mutex_);
  --unfinished_;
}

bool CUstream_st::idle() {
  {
    const cuda_shim::Unseen unseen;
    std::lock_guard lock(mutex_);
    if (unfinished_ > 0) return false;
  }
  cuda_shim::acquire_from(&unfinished_);
  return true;
}

void CUstream_st::run() {
  cuda_shim::BlockRunner runner;  // runs the kernels of this stream
  while (auto item = next()) {
    cuda_shim::acquire_from(item.get());
    (*item)();
    finish_one(std::move(item));
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

// Work that is queued is done first. A broken device does not refuse this call: the stream's thread would stay.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return cuda_shim::remember(cudaErrorInvalidResourceHandle);
  {
    const cuda_shim::Locked lock;
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
  cuda_shim::forget(event->recording);
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
