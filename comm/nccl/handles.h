// A stream and an event of the current device.
#pragma once

#include "core/cuda/error.h"
#include "core/cuda/handle.h"

namespace trivet::comm {

inline cuda::StreamHandle make_stream_handle() {
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return cuda::StreamHandle(stream);
}

inline cuda::EventHandle make_event_handle() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return cuda::EventHandle(event);
}

}  // namespace trivet::comm
