// Times each kernel that the engine of one rank calls; all its kernels must run on one thread (overlap_comm false).
#pragma once

#include <memory>
#include <vector>

#include "autotune/kernel_table.h"
#include "core/stream_clock.h"
#include "kernels/observed_kernels.h"

namespace trivet::autotune {

class KernelTimer final : public kernels::KernelObserver {
 public:
  // Kernels called before are not timed. The clock is that of the engine's backend.
  void start(std::unique_ptr<StreamClock> clock) { clock_ = std::move(clock); }

  void begins() override;
  void ended(const kernels::KernelCall& call) override;

  struct Times {
    std::vector<KernelSample> samples;  // the mean of identical calls; at most kOutlier medians count for each
    std::vector<int64_t> calls;         // [sample] how many were timed
    double gap_seconds = 0;             // mean from one kernel to the next; gaps over kWait are waits and left out
  };
  // Waits until all timed kernels are done, and stops timing. The engine must still exist.
  Times take();

 private:
  static constexpr double kWait = 50e-6, kOutlier = 3;
  using Moment = StreamClock::Moment;
  static double mean_without_outliers(std::vector<double> seconds);
  struct Timed {
    kernels::KernelCall call;
    Moment begin, end;
  };

  std::unique_ptr<StreamClock> clock_;
  Moment begin_ = 0;
  std::vector<Timed> timed_;
};

}  // namespace trivet::autotune
