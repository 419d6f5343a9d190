// Modelled time for an engine that computes nothing. Kernels, streams and groups advance one clock by the times of a cost
// model, and a stream begins its work when it is free. There is one rank and one thread.
//
//   ModelledTime time(costs);
//   Rehearsal rehearsal(plan, rank, model, {.kernels = &time.kernels(), .make_stream = ..., .place = ...});
#pragma once

#include <memory>

#include "autotune/cost_model.h"
#include "core/stream.h"
#include "core/stream_clock.h"

namespace trivet::autotune {

class ModelledTime final : kernels::KernelObserver {
 public:
  // `costs` must outlive this object.
  explicit ModelledTime(const CostModel& costs);

  // Seconds since the start, on the program's thread or, while a stream's work runs, on that stream.
  double now() const { return now_; }
  void pass(double seconds) { now_ += seconds; }
  void go_to(double moment) { now_ = moment; }

  kernels::Kernels& kernels() { return *kernels_; }
  // The objects that these functions make must not outlive this one. `shares_cores`: the stream's work also takes the
  // caller's time, if the cost model's streams share cores.
  std::unique_ptr<Stream> make_stream(bool overlaps, bool shares_cores = true);
  std::unique_ptr<StreamClock> make_clock();
  // `meta` counts what is sent.
  std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> meta);

  const CostModel& costs() const { return costs_; }

 private:
  void ended(const kernels::KernelCall& call) override { pass(costs_.kernel_seconds(call)); }

  const CostModel& costs_;
  double now_ = 0;
  std::unique_ptr<kernels::Kernels> meta_, kernels_;
};

}  // namespace trivet::autotune
