// What the NCCL groups of one rank share: its place in the job, the device's memory, the watch.
//
// Made collectively, before any group, over the group of all ranks on the host, with the rank's device current; closed after
// the last group. Leaving without close() is how an error leaves: communicators are aborted, nobody is waited for.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/nccl/watch.h"
#include "comm/process_group.h"
#include "core/buffer.h"

namespace trivet::comm {

struct NcclOptions {
  std::chrono::milliseconds join_deadline{120000};       // for all ranks to make a communicator
  std::chrono::milliseconds operation_deadline{600000};  // for an operation on the device
  std::chrono::milliseconds heartbeat{100};              // how often the ranks' watches meet
  int64_t staging_bytes = int64_t{32} << 20;             // of each group that sums floats; see nccl_staging_bytes
  int64_t one_exchange_bytes = 32 << 10;                 // all_reduce of up to so many: everybody sums everything
  // Compares the headers of collective operations over the host before each: ranks that disagree are told so, as by the other
  // groups, instead of hanging until the deadline. For debugging: the host waits for all ranks at every operation.
  bool compare_calls = false;
};

// Device memory that a group of `size` ranks takes with its first sum of floats.
inline int64_t nccl_staging_bytes(int size, const NcclOptions& options) { return size > 1 ? options.staging_bytes : 0; }

class NcclResources {
 public:
  // Throws CommError VersionSkew or ConfigError (comm/nccl/places.h). `memory` is the current device's; all must outlive it.
  // `stream_of_now()`: where work goes that runs inside Stream::enqueue.
  NcclResources(ProcessGroup& world, Allocator& memory, MemoryMeter& meter, const std::function<cudaStream_t()>& stream_of_now,
                const NcclOptions& options = {});

  int world_rank() const { return world_rank_; }
  const std::string& host() const { return host_; }
  const NcclOptions& options() const { return options_; }
  int multiprocessors() const { return multiprocessors_; }
  // To be asked, too, wherever the program has waited for the device: an operation that was aborted looks as if it had ended.
  NcclWatch& watch() { return *watch_; }
  Buffer buffer(int64_t bytes);
  cudaStream_t current_stream() const { return current_stream_(); }
  // Collective.
  void close() { watch_->close(); }

 private:
  Allocator& memory_;
  MemoryMeter& meter_;
  const std::function<cudaStream_t()> current_stream_;
  const NcclOptions options_;
  const int world_rank_;
  std::string host_;
  int multiprocessors_ = 0;
  std::unique_ptr<NcclWatch> watch_;
};

}  // namespace trivet::comm
