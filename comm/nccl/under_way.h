// The operations of one group that have been put on streams and have not ended yet: what the watch names when one hangs.
//
// Operations that are captured into a graph leave nothing here. Thread-safe.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "comm/nccl/handles.h"
#include "comm/nccl/seat.h"
#include "comm/operation_header.h"

namespace trivet::comm {

class UnderWay {
 public:
  explicit UnderWay(NcclSeat seat) : seat_(std::move(seat)) {}
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  // The operation that was just put on `stream`.
  void add(const OperationHeader& header, cudaStream_t stream);
  // CommError NoProgress when the first one has been under way for longer than `deadline`; null otherwise.
  std::exception_ptr overdue(std::chrono::milliseconds deadline);

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    OperationHeader header;
    int64_t number = 0;  // in the order of calls, from 1: the same on all ranks for collective operations
    cuda::EventHandle end;
  };
  cuda::EventHandle free_event();
  void drop_ended();

  const NcclSeat seat_;
  std::mutex mutex_;
  std::deque<Operation> operations_;
  Clock::time_point first_since_;  // when the first of them became the first
  std::vector<cuda::EventHandle> free_;
  int64_t count_ = 0;
};

}  // namespace trivet::comm
