#include "core/cuda/streams.h"

#include <algorithm>
#include <utility>

#include "core/cuda/device.h"
#include "core/cuda/error.h"

namespace trivet::cuda {
namespace {

// Set by the innermost StreamScope of this thread.
thread_local const Streams* scope_streams = nullptr;
thread_local cudaStream_t scope_stream = nullptr;

class CudaEvent final : public Event::State {
 public:
  CudaEvent(const Streams& streams, cudaStream_t stream)
      : streams_(streams), stream_(stream), capture_(streams.capture()), pool_(streams.events()), event_(pool_->take()) {
    CUDA_CHECK(cudaEventRecord(event_.get(), stream));
  }
  ~CudaEvent() override { pool_->give_back(std::move(event_)); }

  void synchronize() override {
    if (!streams_.on_own_thread()) return wait_on_host();
    if (!observer_) return hold(streams_.current());
    const auto from = observer_->now();
    hold(streams_.current());
    observer_->waited(from, observer_->now());
  }
  void observe(WaitObserver& observer) override { observer_ = &observer; }

  // Makes `stream` wait for the event. If a capture began or ended in between, that order exists already.
  void hold(cudaStream_t stream) const {
    if (stream != stream_ && capture_ == streams_.capture()) CUDA_CHECK(cudaStreamWaitEvent(stream, event_.get(), 0));
  }
  void wait_on_host() override {
    if (capture_ == 0)
      CUDA_CHECK(cudaEventSynchronize(event_.get()));
    else
      CUDA_CHECK(cudaStreamSynchronize(streams_.compute()));  // an event in a capture never happens; the graph's launch does
  }

 private:
  const Streams& streams_;
  cudaStream_t stream_;
  int64_t capture_;
  std::shared_ptr<EventPool> pool_;
  EventHandle event_;
  WaitObserver* observer_ = nullptr;
};

// For an event of host work, the host waits: nothing else could make the stream wait.
void hold(cudaStream_t stream, const Event& event) {
  if (const auto* ours = dynamic_cast<const CudaEvent*>(event.state())) {
    ours->hold(stream);
  } else {
    event.synchronize();
  }
}

StreamHandle make_handle(int urgency) {
  int least = 0, greatest = 0;  // a smaller number has priority
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  // Non-blocking: our work is not ordered with the default stream.
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, std::max(least - urgency, greatest)));
  return StreamHandle(stream);
}

class ComputeStream final : public Stream {
 public:
  explicit ComputeStream(const Streams& streams) : streams_(streams) {}
  void enqueue(std::function<void()> work) override {
    const StreamScope scope(streams_, streams_.compute());
    work();
  }
  Event record() override { return Event(std::make_shared<CudaEvent>(streams_, streams_.compute())); }
  void wait(const Event& event) override { hold(streams_.compute(), event); }
  void synchronize() override { record().synchronize(); }

 private:
  const Streams& streams_;
};

class SideStream final : public Stream {
 public:
  SideStream(const Streams& streams, int urgency) : streams_(streams), stream_(make_handle(urgency)) {
    streams_.add(stream_.get());
  }
  ~SideStream() override { streams_.remove(stream_.get()); }
  void enqueue(std::function<void()> work) override {
    // Runs after everything that the caller has launched so far; the event can be reused as soon as the wait is queued.
    CudaEvent(streams_, streams_.current()).hold(stream_.get());
    const StreamScope scope(streams_, stream_.get());
    work();
  }
  Event record() override { return Event(std::make_shared<CudaEvent>(streams_, stream_.get())); }
  void wait(const Event& event) override { hold(stream_.get(), event); }
  void synchronize() override { record().synchronize(); }

 private:
  const Streams& streams_;
  StreamHandle stream_;
};

}  // namespace

EventHandle EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      EventHandle event = std::move(free_.back());
      free_.pop_back();
      return event;
    }
  }
  const DeviceScope scope(device_);
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return EventHandle(event);
}

void EventPool::give_back(EventHandle event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(event));
}

Streams::Streams(int device) : device_(device), events_(std::make_shared<EventPool>(device)) {
  CUDA_CHECK(cudaSetDevice(device));
  compute_ = make_handle(0);
}

cudaStream_t Streams::current() const { return scope_streams == this ? scope_stream : compute_.get(); }

std::unique_ptr<Stream> Streams::make_stream(int urgency) const { return std::make_unique<SideStream>(*this, urgency); }
std::unique_ptr<Stream> Streams::make_compute_stream() const { return std::make_unique<ComputeStream>(*this); }

void Streams::join() const {
  for (cudaStream_t side : side_streams_) CudaEvent(*this, side).hold(compute_.get());
}

void Streams::fork() const {
  if (side_streams_.empty()) return;
  const CudaEvent event(*this, compute_.get());
  for (cudaStream_t side : side_streams_) event.hold(side);
}

StreamScope::StreamScope(const Streams& streams, cudaStream_t stream)
    : before_streams_(std::exchange(scope_streams, &streams)), before_stream_(std::exchange(scope_stream, stream)) {}

StreamScope::~StreamScope() {
  scope_streams = before_streams_;
  scope_stream = before_stream_;
}

}  // namespace trivet::cuda
