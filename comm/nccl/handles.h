// Create a stream and an event on the current device. The stream has the highest priority, because others wait for its work.
#pragma once

#include "core/cuda/error.h"
#include "core/cuda/handle.h"

namespace trivet::comm {

inline cuda::StreamHandle make_stream_handle() {
  int least = 0, greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  return cuda::StreamHandle(stream);
}

inline cuda::EventHandle make_event_handle() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return cuda::EventHandle(event);
}

}  // namespace trivet::comm
