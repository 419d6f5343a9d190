// Work of a rank's streams that is done again and again: captured as a CUDA graph, which one call of the host launches.
//
//   run(key, work)   the first time: work, as it comes      memory is taken, kernels are loaded, products find their algorithm
//                    the second:     work, captured         launched once it is whole: nothing of it runs before
//                    from then on:   the graph              `work` is not called
//
//   compute   .. join | k1 --- k2 --------- k3 | fork ..     side streams begin and end the capture in the compute stream, and
//   gather    --'      `------ all_gather --'    `--         are before and behind a launch as they would be without
//
// Another key drops the graph and begins again. What `work` must be is said at Backend::repeat.
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
  // Calls `work`. Throws what it throws; DeviceError when CUDA refuses some of it, with what to do.
  Graph(Streams& streams, const std::function<void()>& work);
  // After all that the streams were given so far; what they are given next comes after it.
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
  std::optional<std::vector<int64_t>> key_;  // of the last work
  std::optional<Graph> graph_;
};

}  // namespace trivet::cuda
