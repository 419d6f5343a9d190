// Times work on a stream with events, and prints the medians, one JSON object per line (CMakeLists.txt in this folder).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "core/cuda/error.h"

namespace trivet::cuda {

class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Returns the median seconds of one call of `work`, whose argument is the number of the call, so that it can alternate
  // between buffers. Warms up first. Calls that take less than kLeastSeconds are timed in groups, so that launch overhead is
  // not what is measured.
  double median_seconds(const std::function<void(int)>& work, int samples = 15) {
    const double once = std::max(seconds_of(work, 3), 1e-7);
    const int calls = std::max(1, static_cast<int>(kLeastSeconds / once));
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(seconds_of(work, calls));
    std::nth_element(seconds.begin(), seconds.begin() + samples / 2, seconds.end());
    return seconds[static_cast<size_t>(samples) / 2];
  }

 private:
  static constexpr double kLeastSeconds = 2e-3;

  double seconds_of(const std::function<void(int)>& work, int calls) {
    CUDA_CHECK(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < calls; ++i) work(i);
    CUDA_CHECK(cudaEventRecord(end_, stream_));
    CUDA_CHECK(cudaEventSynchronize(end_));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return ms * 1e-3 / calls;
  }

  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// `more`: further members of the object, each preceded by a comma.
inline void print_figure(const std::string& name, double value, const std::string& unit, const std::string& more = "") {
  std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"%s}\n", name.c_str(), value, unit.c_str(), more.c_str());
  std::fflush(stdout);
}

// The body of a benchmark's main; returns its exit code.
inline int run_bench(const char* program, void (*run)()) {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

}  // namespace trivet::cuda
