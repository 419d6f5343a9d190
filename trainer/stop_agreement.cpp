#include "trainer/stop_agreement.h"

#include <algorithm>
#include <array>

namespace trivet {

StopAgreement::StopAgreement(StopRequest* request, comm::ProcessGroup& group, const Clock& clock)
    : request_(request), group_(group), clock_(clock), last_meeting_(clock.now()) {
  if (!request_) return;
  saves_done_ = request_->saves();
  request_->begin_listening();
}

StopAgreement::~StopAgreement() {
  if (request_) request_->end_listening();
}

StopDecision StopAgreement::asked_here() {
  const int64_t saves = request_->saves();
  const bool save = saves > saves_done_;
  saves_done_ = saves;
  return {.end_signal = request_->signal(), .save = save};
}

StopDecision StopAgreement::after_step() {
  if (!request_) return {};
  if (group_.size() == 1) return asked_here();
  if (--steps_left_ > 0) return {};
  const StopDecision mine = asked_here();
  const std::chrono::nanoseconds now = clock_.now();
  std::array<int64_t, 3> words{mine.end_signal, mine.save ? 1 : 0, (now - last_meeting_).count()};
  const auto stream = make_inline_stream();
  group_.all_reduce({words.data(), DType::Int64, {static_cast<int64_t>(words.size())}}, comm::ReduceOp::Max, *stream);
  stream->synchronize();
  last_meeting_ = now;
  steps_between_ = steps_left_ = steps_until_next(std::chrono::nanoseconds(words[2]));
  if (words[1] != 0) saves_done_ = request_->saves();  // also covers requests that arrived since asked_here()
  return {.end_signal = static_cast<int>(words[0]), .save = words[1] != 0};
}

// Returns at most twice the previous number, because the time of a few steps is a poor prediction for many.
int64_t StopAgreement::steps_until_next(std::chrono::nanoseconds of_slowest) const {
  const int64_t step_ns = std::max<int64_t>(of_slowest.count() / steps_between_, 1);
  return std::clamp<int64_t>(std::chrono::nanoseconds(kSpacing).count() / step_ns, 1, 2 * steps_between_);
}

}  // namespace trivet
