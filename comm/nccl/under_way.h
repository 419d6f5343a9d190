// The operations of one group that are in flight on streams. The watch names the oldest one when it hangs.
//
// Operations that are captured into a graph are not recorded here. Thread-safe.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "comm/nccl/handles.h"
#include "comm/operation_header.h"
#include "comm/rank_in_group.h"

namespace trivet::comm {

class UnderWay {
 public:
  explicit UnderWay(RankInGroup self) : self_(std::move(self)) {}
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  // Records the operation that was just enqueued on `stream`.
  void add(const OperationHeader& header, cudaStream_t stream);
  // Returns CommError NoProgress if the oldest operation has been the oldest for longer than `deadline`, otherwise null.
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

  const RankInGroup self_;
  std::mutex mutex_;
  std::deque<Operation> operations_;
  Clock::time_point first_since_;  // when the oldest operation became the oldest
  std::vector<cuda::EventHandle> free_;
  int64_t count_ = 0;
};

}  // namespace trivet::comm
