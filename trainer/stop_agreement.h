// Lets the ranks of a run agree on the step after which they save or end, although a request reaches them at different steps.
//
// After a step they exchange their requests by an all-reduce that takes the maximum. This is a small operation, but steps may
// be even shorter, so the exchange happens at most about every 0.25 s: each time, the ranks agree on the number of steps until
// the next one, based on the clock of the slowest rank. If steps take longer than that, an exchange follows every step.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/process_group.h"
#include "core/clock.h"
#include "trainer/stop_request.h"

namespace trivet {

struct StopDecision {
  int end_signal = 0;  // 0: the run continues
  bool save = false;
};

class StopAgreement {
 public:
  static constexpr std::chrono::milliseconds kSpacing{250};

  // `request`: null on all ranks or on none; null: nothing is ever requested. The arguments must outlive this object.
  StopAgreement(StopRequest* request, comm::ProcessGroup& group, const Clock& clock = system_clock());
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // All ranks call it after each step, and all get the same decision.
  StopDecision after_step();

 private:
  StopDecision asked_here();
  int64_t steps_until_next(std::chrono::nanoseconds of_slowest) const;

  StopRequest* request_;
  comm::ProcessGroup& group_;
  const Clock& clock_;
  int64_t saves_done_ = 0;     // counts requested saves
  int64_t steps_between_ = 1;  // from one exchange to the next
  int64_t steps_left_ = 1;     // until the next one
  std::chrono::nanoseconds last_meeting_;
};

}  // namespace trivet
