// Times each kernel that an engine calls: of one rank, whose kernels all run on one thread (overlap_comm false).
#pragma once

#include <memory>
#include <vector>

#include "autotune/kernel_table.h"
#include "core/stream_clock.h"
#include "kernels/observed_kernels.h"

namespace trivet::autotune {

class KernelTimer final : public kernels::KernelObserver {
 public:
  // Kernels before are not timed. The clock is that of the engine's backend.
  void start(std::unique_ptr<StreamClock> clock) { clock_ = std::move(clock); }

  void begins() override;
  void ended(const kernels::KernelCall& call) override;

  struct Times {
    std::vector<KernelSample> samples;  // of calls that are alike the mean; what took over kOutlier medians counts as that
    double gap_seconds = 0;             // from one kernel to the next; what is longer than kWait is waiting and left out
  };
  // Waits until all of them are done, and stops. While the engine lives.
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
