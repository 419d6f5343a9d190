#include "core/cuda/event_clock.h"

#include <vector>

#include "core/clock.h"
#include "core/cuda/error.h"

namespace trivet::cuda {
namespace {

class EventClock final : public StreamClock {
 public:
  explicit EventClock(const Streams& streams) : streams_(streams) {}

  Moment now() override {
    if (used_ == 0) agree_with_host();
    return record(streams_.current());
  }
  // The stream holds the event back until its turn, just as it holds the work.
  Moment turn(Moment, Moment) override { return now(); }
  double milliseconds(Moment moment) override {
    cudaEvent_t event = events_[static_cast<size_t>(moment)].get();
    float since = 0;
    CUDA_CHECK(cudaEventSynchronize(event));
    CUDA_CHECK(cudaEventElapsedTime(&since, events_.front().get(), event));
    return first_ms_ + since;
  }
  void forget() override { used_ = 0; }

 private:
  Moment record(cudaStream_t stream) {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      CUDA_CHECK(cudaEventCreate(&event));
      events_.emplace_back(event);
    }
    CUDA_CHECK(cudaEventRecord(events_[used_].get(), stream));
    return static_cast<Moment>(used_++);
  }
  void agree_with_host() {
    record(streams_.compute());
    CUDA_CHECK(cudaEventSynchronize(events_.front().get()));
    first_ms_ = static_cast<double>(system_clock().now().count()) * 1e-6;
  }

  const Streams& streams_;
  std::vector<EventHandle> events_;
  size_t used_ = 0;
  double first_ms_ = 0;  // the first event's time
};

}  // namespace

std::unique_ptr<StreamClock> make_event_clock(const Streams& streams) { return std::make_unique<EventClock>(streams); }

}  // namespace trivet::cuda
