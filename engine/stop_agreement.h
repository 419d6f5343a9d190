// How the ranks of a run agree after which step they save or end, although a request reaches them at different steps.
//
// After a step they take the maximum of what each was asked. That is a small operation, but steps may be shorter than it, so it
// is done at most about every 0.25 s: the ranks agree each time after how many steps they meet again, from the slowest rank's
// clock. A run whose steps take longer meets after every step.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/process_group.h"
#include "core/clock.h"
#include "engine/stop_request.h"

namespace trivet {

struct StopDecision {
  int end_signal = 0;  // 0: the run goes on
  bool save = false;
};

class StopAgreement {
 public:
  static constexpr std::chrono::milliseconds kSpacing{250};

  // `request`: null on all ranks or on none; null: nothing is ever asked. What is given must outlive it.
  StopAgreement(StopRequest* request, comm::ProcessGroup& group, const Clock& clock = system_clock());
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // All ranks call it after each step, and get the same.
  StopDecision after_step();

 private:
  StopDecision asked_here();
  int64_t steps_until_next(std::chrono::nanoseconds of_slowest) const;

  StopRequest* request_;
  comm::ProcessGroup& group_;
  const Clock& clock_;
  int64_t saves_done_ = 0;     // of the request's
  int64_t steps_between_ = 1;  // meetings
  int64_t steps_left_ = 1;     // until the next one
  std::chrono::nanoseconds last_meeting_;
};

}  // namespace trivet
