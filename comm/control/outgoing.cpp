#include "comm/control/outgoing.h"

#include <poll.h>

namespace trivet::comm::control {

short Outgoing::events() const { return proving_ ? POLLIN : POLLOUT; }

Outgoing::State Outgoing::fail(Failure failure) {
  failure_ = failure;
  return State::Failed;
}

Outgoing::State Outgoing::step(const Secret& secret, TimePoint now) {
  if (!proving_) {
    switch (attempt_.step(now)) {
      case ConnectionAttempt::State::Waiting: return now < deadline_ ? State::Waiting : fail(Failure::NotReached);
      case ConnectionAttempt::State::Failed: return fail(Failure::NotReached);
      case ConnectionAttempt::State::Connected: proving_ = attempt_.take();
    }
  }
  switch (prover_.step(proving_, secret)) {
    case Prover::State::Proven: return State::Proven;
    case Prover::State::SentAway: return fail(Failure::SentAway);
    case Prover::State::Refused: return fail(Failure::Stranger);
    case Prover::State::Waiting: break;
  }
  return now < deadline_ ? State::Waiting : fail(Failure::Silent);
}

}  // namespace trivet::comm::control
