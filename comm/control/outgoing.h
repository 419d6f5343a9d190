// A connection that a node makes to another one: connects and proves that it knows the secret; neither step blocks. Poll
// number() for events() and call step().
#pragma once

#include <string>

#include "comm/control/node.h"
#include "comm/handshake.h"

namespace trivet::comm::control {

class Outgoing {
 public:
  enum class State { Waiting, Proven, Failed };
  enum class Failure {
    NotReached,  // error() says why
    Silent,      // nothing has answered the proof
    SentAway,    // the other end has closed the connection before it answered the proof
    Stranger,    // it does not know the secret
  };

  Outgoing(Actions::Call call, std::vector<SocketAddress> addresses, TimePoint now, TimePoint deadline)
      : call_(std::move(call)), attempt_(std::move(addresses), now), deadline_(deadline) {}
  State step(const Secret& secret, TimePoint now);
  const Actions::Call& call() const { return call_; }
  int number() const { return proving_ ? proving_.number() : attempt_.number(); }
  short events() const;
  Connection take(const FrameLimits& limits) {
    return Connection(std::move(proving_), prover_.keys(), limits);
  }                                               // after Proven
  Failure failure() const { return failure_; }    // after Failed
  int error() const { return attempt_.error(); }  // errno, after NotReached

 private:
  State fail(Failure failure);

  Actions::Call call_;
  ConnectionAttempt attempt_;
  TimePoint deadline_;
  Descriptor proving_;
  Prover prover_;
  Failure failure_ = Failure::NotReached;
};

}  // namespace trivet::comm::control
