// Repeated work on a rank's streams, captured as a CUDA graph that one host call launches.
//
//   run(key, work)   first time:     runs `work` directly    allocates memory, loads kernels, chooses algorithms for products
//                    second time:    captures `work`         launches the complete graph; nothing runs before that
//                    from then on:   launches the graph      does not call `work`
//
//   compute   .. join | k1 --- k2 --------- k3 | fork ..     Within a capture, side streams fork from and join the compute
//   gather    --'      `------ all_gather --'    `--         stream. join and fork order them before and after a launch.
//
// A different key drops the graph and starts again. Backend::repeat states the requirements for `work`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/cuda/handle.h"
#include "core/cuda/streams.h"

namespace trivet::cuda {

class Graph {
 public:
  // Calls `work`. Throws what it throws, or a DeviceError that says what to do if CUDA cannot capture it.
  Graph(Streams& streams, const std::function<void()>& work);
  // Runs after all work enqueued on the streams so far, and before all work enqueued later.
  void launch() const;

 private:
  Streams& streams_;
  UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy> executable_;
};

class RepeatedWork {
 public:
  // `streams` must outlive it.
  explicit RepeatedWork(Streams& streams) : streams_(streams) {}
  void run(const std::vector<int64_t>& key, const std::function<void()>& work);

 private:
  Streams& streams_;
  std::optional<std::vector<int64_t>> key_;  // key of the last work
  std::optional<Graph> graph_;
};

}  // namespace trivet::cuda
