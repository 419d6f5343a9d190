#include "comm/nccl/under_way.h"

#include <fmt/format.h>

#include "core/cuda/error.h"
#include "core/error.h"

namespace trivet::comm {

void UnderWay::add(const OperationHeader& header, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  ++count_;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) return;
  drop_ended();
  if (operations_.empty()) first_since_ = Clock::now();
  operations_.push_back({header, count_, free_event()});
  CUDA_CHECK(cudaEventRecord(operations_.back().end.get(), stream));
}

std::exception_ptr UnderWay::overdue(std::chrono::milliseconds deadline) {
  const std::lock_guard lock(mutex_);
  drop_ended();
  if (operations_.empty() || Clock::now() - first_since_ < deadline) return nullptr;
  const Operation& first = operations_.front();
  return std::make_exception_ptr(CommError(
      ExitCode::NoProgress,
      fmt::format("{}no progress: {} (operation {} of the group) is on the device and has not ended within {} s: a rank of the "
                  "group has not reached it, or is waiting for something else; its own message says what",
                  self_.prefix(), to_string(first.header), first.number, static_cast<double>(deadline.count()) / 1000)));
}

// Drops ended operations in the order of calls. An error of the device itself is reported where the program waits for it.
void UnderWay::drop_ended() {
  while (!operations_.empty() && cudaEventQuery(operations_.front().end.get()) != cudaErrorNotReady) {
    free_.push_back(std::move(operations_.front().end));
    operations_.pop_front();
    first_since_ = Clock::now();
  }
  cudaGetLastError();  // clears "not ready", which must not be reported as an error
}

cuda::EventHandle UnderWay::free_event() {
  if (free_.empty()) return make_event_handle();
  cuda::EventHandle event = std::move(free_.back());
  free_.pop_back();
  return event;
}

}  // namespace trivet::comm
