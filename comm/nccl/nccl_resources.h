// Resources that the NCCL groups of one rank share: its place in the job, the device's memory, the watch.
//
// Created collectively over the host group of all ranks, before any NCCL group and with the rank's device current; closed after
// the last group. After an error, it is destroyed without close(): communicators are aborted, and nobody is waited for.
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
  std::chrono::milliseconds join_deadline{120000};       // for all ranks to create a communicator
  std::chrono::milliseconds operation_deadline{600000};  // for an operation on the device
  std::chrono::milliseconds heartbeat{100};              // interval at which the ranks' watches meet
  int64_t staging_bytes = int64_t{32} << 20;             // per group that sums floats; see nccl_staging_bytes
  int64_t one_exchange_bytes = 32 << 10;                 // an all_reduce up to this size is summed by every rank
  // Compares headers over the host before each collective operation, so that ranks that disagree get an error, as in other
  // groups, instead of hanging until the deadline. For debugging only: the host waits for all ranks at every operation.
  bool compare_calls = false;
};

// Device memory that a group of `size` ranks allocates for its first sum of floats.
inline int64_t nccl_staging_bytes(int size, const NcclOptions& options) { return size > 1 ? options.staging_bytes : 0; }

class NcclResources {
 public:
  // Throws CommError VersionSkew or ConfigError (comm/nccl/places.h). `memory` must be that of the current device; all
  // arguments must outlive this object. `stream_of_now()` returns the stream for work that runs inside Stream::enqueue.
  NcclResources(ProcessGroup& world, Allocator& memory, MemoryMeter& meter, const std::function<cudaStream_t()>& stream_of_now,
                const NcclOptions& options = {});

  int world_rank() const { return world_rank_; }
  const std::string& host() const { return host_; }
  const NcclOptions& options() const { return options_; }
  int multiprocessors() const { return multiprocessors_; }
  // The program must also call its check() after it has waited for the device: an aborted operation looks as if it had ended.
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
